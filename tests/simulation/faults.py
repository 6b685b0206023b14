"""What goes wrong, by kind: each function does one fault, and arranges for its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from outbox_api import DriverError

from .broker import ENDING_SECONDS
from .scenario import Mode
from .spark_faults import SPARK_FAULTS

if TYPE_CHECKING:
    from .group import Group
    from .scheduler import Host
    from .world import World

Fault = Callable[["World"], None]


def crash(world: World) -> None:
    """Kills a process; another with its number starts after a while, perhaps with another number of lanes."""
    number = world.chance.randrange(len(world.processes))
    world.processes[number].kill()
    world.scheduler.after(world.chance.random() * 2, world.restart, number)


def pause(world: World) -> None:
    """Stops a process or a worker (SIGSTOP); its clock and what it has sent go on."""
    freeze(world, _host(world), counted=True)


def suspend(world: World) -> None:
    """The same with a monotonic clock that stands still meanwhile."""
    freeze(world, _host(world), counted=False)


def freeze_copy(world: World) -> None:
    """Freezes an incarnation of a lane group, while its leader starts another."""
    if groups := _on_workers(world):
        _replace(world, world.chance.choice(groups))


def restart_lane(world: World) -> None:
    """Ends a lane by an error, so that it starts anew in its process with requests still in the network."""
    runs = [run for process in world.processes for group in process.groups for run in group.running.values()]
    if runs:
        run = world.chance.choice(runs)
        run.host.do(run.fail, DriverError("fails", retryable=True))


def give_up(world: World) -> None:
    """Has a leader leave its outbox to another process, as one does that leads more outboxes than others."""
    process = world.chance.choice(world.processes)
    process.host.do(process.give_up)


def crash_database(world: World) -> None:
    """Kills the database, which comes back without what was not durable."""
    if not world.database.down:
        world.database.crash()
        world.scheduler.after(0.05 + world.chance.random(), world.database.start)


def slow_database(world: World) -> None:
    """Has statements take their time between their steps."""
    world.database.slow = world.chance.choice((0.02, 0.2, 1.0))
    _later(world, lambda: setattr(world.database, "slow", world.scenario.slow))


def lose_replies(world: World) -> None:
    """Has many statements meet an error on the way."""
    world.wire.lossy = world.chance.choice((0.05, 0.3, 0.9))
    _later(world, lambda: setattr(world.wire, "lossy", world.scenario.lossy))


def delay_statements(world: World) -> None:
    """Has some statements arrive late."""
    world.wire.late = world.chance.choice((0.1, 1.0, 4.0))
    _later(world, lambda: setattr(world.wire, "late", 0.0))


def delay_packets(world: World) -> None:
    """Has some records reach the broker late."""
    world.broker.late = world.chance.choice((0.1, 0.5, 3.0))
    _later(world, lambda: setattr(world.broker, "late", 0.0))


def clog_clients(world: World) -> None:
    """Has records wait in front of the clients that are to send them."""
    world.broker.clogged = world.chance.choice((0.01, 0.1, 0.5))
    _later(world, lambda: setattr(world.broker, "clogged", 0.0))


def fail_deliveries(world: World) -> None:
    """Has many records, or their acknowledgements, be lost."""
    world.broker.lossy = world.chance.choice((0.1, 0.5))
    _later(world, lambda: setattr(world.broker, "lossy", world.scenario.lossy))


def send_broker_away(world: World) -> None:
    """Takes the broker away for a while."""
    away = world.chance.choice((0.1, 0.5, 2.0)) * world.chance.random()
    world.broker.away_until = max(world.broker.away_until, world.scheduler.now + away)


def cut_off_from_broker(world: World) -> None:
    """Cuts a process off from the broker, not from its elector; one of several perhaps for good."""
    cut_off, chance, number = world.broker.cut_off, world.chance, world.chance.randrange(len(world.processes))
    seconds = chance.choice((0.5, 2.0, 10.0, float("inf")))
    if seconds == float("inf") and (len(world.processes) == 1 or seconds in cut_off.values()):
        seconds = 10.0
    name = f"process {number}"
    cut_off[name] = max(cut_off.get(name, 0.0), world.scheduler.now + seconds)


def step_lease_clock(world: World) -> None:
    """Steps the clock of the database by which leases run out, mostly back."""
    world.lease_clock += world.chance.choice((-3600.0, -60.0, -2.0, 2.0))


def cut_elector(world: World) -> None:
    """Cuts a process off from the election only."""
    member = world.chance.choice(world.processes).elector
    member.cut_until = world.scheduler.now + world.chance.random() * 4


def lie(world: World) -> None:
    """Has the election name whoever asks."""
    world.election.lies_until = world.scheduler.now + world.chance.random() * 3


def hand_over(world: World) -> None:
    """Has the election ask its leader to make room."""
    for process in world.processes:
        if process.elected:
            process.host.do(process.elector.hand_over)


def step_clock(world: World) -> None:
    """Steps a process's wall clock; nothing but an election that trusts it may notice."""
    world.chance.choice(world.processes).host.wall += world.chance.uniform(-3, 3)


def crash_broker(world: World) -> None:
    """Kills the broker, and with it the answers on their way; it is back soon."""
    world.broker.crash(world.chance.random() * world.chance.choice((0.05, 0.5)))


def end_slowly(world: World) -> None:
    """Has transactions take long to end once that is decided."""
    world.broker.slow = world.chance.choice((0.05, 0.5, 2.0))
    _later(world, lambda: setattr(world.broker, "slow", ENDING_SECONDS))


def time_out_transactions(world: World) -> None:
    """Has the broker end what is open, as though it had been for too long."""
    for identity in world.broker.identities.values():
        if identity.unfinished is not None:
            identity.time_out(identity.unfinished)


def freeze_recovery(world: World) -> None:
    """Has a host be frozen between two steps of how one of its lanes begins, see :func:`recovery_steps`."""
    world.steps_to_freeze = world.chance.randint(1, 10)


def recovery_steps(world: World, host: Host) -> None:
    """Freezes the host of a recovery if it is time for that; its lanes are started again."""
    if world.steps_to_freeze:
        world.steps_to_freeze -= 1
        if not world.steps_to_freeze:
            groups = [group for group in _on_workers(world) if group.host is host]
            if groups:
                _replace(world, groups[0])
            else:
                freeze(world, host, counted=True)


def forget_checkpoint(world: World) -> None:
    """Has the broker forget a checkpoint, as it does when nobody has written it for days; seldom."""
    identities = list(world.broker.identities.values())
    if identities and world.chance.random() < 0.2:
        attempts = world.chance.choice(identities).attempts
        if attempts:
            del attempts[world.chance.choice(list(attempts))]


FAULTS: dict[str, Fault] = {
    "crashes": crash,
    "pauses": pause,
    "suspends": suspend,
    "frozen copies": freeze_copy,
    "lane restarts": restart_lane,
    "database crashes": crash_database,
    "slow database": slow_database,
    "lossy network": lose_replies,
    "late network": delay_statements,
    "late packets": delay_packets,
    "clogged clients": clog_clients,
    "failing deliveries": fail_deliveries,
    "broker away": send_broker_away,
    "broker unreachable": cut_off_from_broker,
    "elector cut off": cut_elector,
    "elector lies": lie,
    "handovers": hand_over,
    "give-ups": give_up,
    "clock steps": step_clock,
    "lease clock steps": step_lease_clock,
}
"""Name in the report → what it does."""

TRANSACTION_FAULTS: dict[str, Fault] = {
    "broker crashes": crash_broker,
    "slow commits": end_slowly,
    "timed-out transactions": time_out_transactions,
    "forgotten checkpoints": forget_checkpoint,
    "frozen recoveries": freeze_recovery,
}
"""The same, for histories in which somebody publishes in transactions."""

DATABASE_FAULTS = ("database crashes", "slow database", "lossy network", "late network")

EVERY_FAULT = {**FAULTS, **TRANSACTION_FAULTS, **SPARK_FAULTS}


def kinds_of(mode: Mode) -> tuple[str, ...]:
    """Returns the faults that concern a mode."""
    if mode is Mode.SPARK:
        return (*DATABASE_FAULTS, *SPARK_FAULTS)
    return (*FAULTS, *(() if mode is Mode.AT_LEAST_ONCE else TRANSACTION_FAULTS))


def _host(world: World) -> Host:
    hosts = [process.host for process in world.processes]
    hosts += [group.host for process in world.processes for group in process.groups if not group.over]
    return world.chance.choice(hosts)


def _on_workers(world: World) -> list[Group]:
    return [
        group for process in world.processes for group in process.groups
        if group.host is not process.host and group.host.alive and not group.over
    ]  # fmt: skip


def _replace(world: World, group: Group) -> None:
    """Freezes an incarnation of a lane group; its leader starts another soon."""
    freeze(world, group.host, counted=True)
    world.scheduler.after(world.chance.random() * 0.2, setattr, group, "replaced", True)  # by its engine


def freeze(world: World, host: Host, *, counted: bool) -> None:
    if host.alive and not host.paused:
        host.pause()
        world.frozen.append(host)
        seconds = world.chance.choice((0.05, 0.5, 2.0, 5.0)) * world.chance.random()
        world.scheduler.after(seconds, lambda: host.resume(counted=counted))


def _later(world: World, end: Callable[[], None]) -> None:
    world.scheduler.after(world.chance.random() * 3, end)
