"""One history of an intake in virtual time: leaders that move rows, applications, and what goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from greenlet import GreenletExit, getcurrent, greenlet
from outbox_api.portable import held_keys, moving
from outbox_api.portable import intakes as portable_intakes
from outbox_api.portable.intakes import Connected, PortableIntakes
from outbox_core.harvest.intakes import IntakeThread
from outbox_core.leadership.leader import Leadership
from outbox_core.settings import Limits

from .intake_table import SQL, Event, SimulatedIntake, SimulatedSession, Tables, ask
from .scheduler import Host, Scheduler
from .trail import Violation

KINDS = (
    *("lost", "commits", "cancelled", "crash", "switch", "kill", "suspend", "rivals", "denied"),
    *("lock", "update", "delete", "refuse", "break", "large"),
)
"""What may go wrong: with connections, servers and leaders; with rows."""
LIMITS = Limits(max_lane_bytes=2048)
LARGE = 5_000
LEAST = 200
"""So many bytes a transaction must move at least if statements take long."""
PROMPT_SECONDS = 20.0
"""So long an untroubled row waits at most once nothing has gone wrong for as long: a backlog takes time."""
IDLE_SECONDS = 10.0
"""After this time the server ends the transaction of a process that stands still."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a mutant can replace."""

    mover: type[moving.Mover] = moving.Mover
    hold: Any = portable_intakes._hold
    intake: type[SimulatedIntake] = SimulatedIntake


class Flag:
    """Ends a leader's thread, as ``threading.Event`` does, and its pauses are virtual."""

    def __init__(self, world: IntakeWorld, host: Host) -> None:
        self._world = world
        self._host = host
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set or not self._host.alive

    def set(self) -> None:
        self._is_set = True

    def wait(self, seconds: float) -> None:
        """Pauses."""
        if not self.is_set():
            self._host.after(seconds, getcurrent().switch)
            getcurrent().parent.switch()


class Leader:
    """One process, which raises the fence and then moves rows until its leadership is over."""

    def __init__(self, world: IntakeWorld, name: str) -> None:
        self.host = Host(name, world.scheduler)
        self.leadership: Leadership | None = None
        self._world = world
        self._thread = greenlet(self._run)
        self.host.after(0.0, self._thread.switch)

    @property
    def runs(self) -> bool:
        return self.host.alive and not self._thread.dead

    def _run(self) -> None:
        world, flag = self._world, Flag(self._world, self.host)
        while (token := ask(self.host, world, self._bump)) is None:
            flag.wait(0.05)
        leadership = self.leadership = Leadership(token, lambda: 1.0, self.host.clock)
        moved = PortableIntakes(partial(self._connect, token), [world.intake])
        moved._movers = {  # a clock of its own
            intake.table: (intake, world.parts.mover(intake.table, self.host.clock))
            for intake, _ in moved._movers.values()
        }
        settings = cast("Any", SimpleNamespace(limits=LIMITS))
        thread = IntakeThread(moved, leadership, settings)
        thread._stopping = cast("Any", flag)
        world.note(f"{self.host.name} leads with token {token}")
        thread._run()
        world.note(f"{self.host.name} ends")

    def _bump(self) -> int | None:
        tables = self._world.tables
        if tables.holder or self._world.now < tables.down_until:
            return None
        tables.token += 1
        self._world.disturbed()
        return tables.token

    def _connect(self, token: int) -> Connected:
        world = self._world
        session = SimulatedSession(world.tables, self.host, token)
        look = lambda _: world.parts.intake(session, world.tables)  # noqa: E731 - a callback
        return Connected(cast("Any", session), cast("Any", SQL), "outbox", cast("Any", look))

    def kill(self) -> None:
        """Ends the process; the server finds out later."""
        self.host.kill()
        if not self._thread.dead:
            self._thread.throw(GreenletExit)
        tables, chance = self._world.tables, self._world.chance
        for session in [each for each in tables.sessions if each.on(self.host)]:
            self._world.scheduler.after(chance.uniform(0.0, 3.0), session.break_off)

    def suspend(self, seconds: float) -> None:
        """Stands still; the server ends an open transaction after a while."""
        self.host.pause()
        scheduler = self._world.scheduler
        scheduler.after(seconds, partial(self.host.resume, counted=self._world.chance.random() < 0.5))
        if seconds > IDLE_SECONDS:
            scheduler.after(IDLE_SECONDS, self._break_off)

    def _break_off(self) -> None:
        tables = self._world.tables
        if self.host.paused and tables.holder and tables.holder.on(self.host):
            tables.holder.break_off()


class IntakeWorld:
    """The tables, the leaders, and what happens to them.

    Attributes:
        chance: The source of all choices.
        counts: What was done, and what went wrong.
        trail: What happened, in words.

    Args:
        seed: Determines everything.
        parts: The product, or a mutant of it.
        kinds: What may happen.
        fixed: What of the history is not drawn.
    """

    def __init__(
        self,
        seed: int,
        parts: Parts | None = None,
        kinds: Sequence[str] = KINDS,
        fixed: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.chance = chance = Random(seed)
        self.parts = parts or Parts()
        self.scheduler = Scheduler()
        self.counts = Counter[str]()
        self.trail: list[str] = []
        self.intake = cast("Any", SimpleNamespace(table="events"))
        self.tables = Tables(self)
        drawn: dict[str, Any] = {
            "kinds": tuple(kind for kind in kinds if chance.random() < 0.5),
            "keys": chance.randint(2, 8),
            "rate": chance.uniform(1.0, 10.0),
            "seconds": chance.uniform(10.0, 60.0),
            "pause": chance.uniform(0.3, 6.0),
            "slow": chance.choice([0.002, 0.002, 0.05]),
            "sizes": {
                "LISTED": chance.choice([5, 40, 1000]),
                "PORTION": chance.choice([4, 12, 50]),
                "PORTION_BYTES": chance.choice([60, 400, 10_000]),
            },
            "refused_seconds": chance.choice([4.0, 60.0]),
            "tells_keys": self.tables.tells_keys,
        }
        self.scenario = {**drawn, **fixed}
        self.tables.tells_keys = self.scenario["tells_keys"]
        sizes = self.scenario["sizes"]
        if min(10 * sizes["LISTED"], 10 * sizes["PORTION"], sizes["PORTION_BYTES"]) < LEAST:
            self.scenario["slow"] = 0.002  # else more is written than can be moved
        if not self.tables.tells_keys:  # whose rows fill the list is not known, and all of them are read
            sizes["LISTED"], self.scenario["slow"] = 1000, 0.002
        self._leaders: list[Leader] = []
        self._numbers = 0
        self._fates: list[str] = []
        self._disturbed_at = 0.0
        self._healed = False

    @property
    def now(self) -> float:
        return self.scheduler.now

    @property
    def steps(self) -> int:
        return self.scheduler.steps

    def note(self, text: str) -> None:
        self.trail.append(f"{self.now:9.3f}  {text}")

    def disturbed(self) -> None:
        """Notes that something went wrong that may hold up all rows."""
        self._disturbed_at = self.now

    def delay(self) -> float:
        """Returns how long a message is under way."""
        return self.chance.uniform(0.0, self.scenario["slow"])

    def fate(self, *, commits: bool) -> str:
        """Returns what becomes of a statement; empty for its execution."""
        if not self._fates or (self._fates[0].startswith("commit") and not commits):
            return ""
        self.disturbed()
        return self._fates.pop(0).removeprefix("commit ")

    # --- a history ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs the history.

        Raises:
            Violation: An invariant was broken.
        """
        with (
            patch.multiple(moving, **self.scenario["sizes"]),
            patch.object(held_keys, "REFUSED_SECONDS", self.scenario["refused_seconds"]),
            patch.object(portable_intakes, "_hold", self.parts.hold),
        ):
            self._run()

    def _run(self) -> None:
        after = self.scheduler.after
        self._lead()
        after(0.1, self._write)
        after(self.scenario["pause"], self._happen)
        after(1.0, self._look)
        try:
            self.scheduler.run(self.scenario["seconds"])
            self._heal()
            patience = self.now + held_keys.REFUSED_SECONDS + 2 * PROMPT_SECONDS
            while self.tables.events and self.now < patience:
                self.scheduler.run(self.now + 1.0)
            if self.tables.events:
                row = next(iter(self.tables.events.values()))
                raise Violation("waits", f"row {row.number} waits for ever, {self._said()}", row.key)
        finally:
            for leader in self._leaders:
                leader.kill()

    def _heal(self) -> None:
        self._healed, self._fates = True, []
        self.tables.denied = False
        for row in self.tables.events.values():
            if row.locked == "application":
                row.locked = None
            if row.refused or row.breaks or row.size == LARGE:
                self._change(row)
        for leader in self._leaders:
            leader.host.resume(counted=True)
            if leader is not self._leaders[-1]:
                leader.kill()
        if not self._leaders[-1].runs:
            self._lead()
        self.disturbed()

    def _lead(self) -> None:
        self.disturbed()
        self._leaders.append(Leader(self, f"leader {len(self._leaders) + 1}"))

    def _look(self) -> None:
        """Looks for rows that wait without a reason, and for a leader."""
        if not self._leaders[-1].runs:
            self._lead()
        elif self._leaders[-1].host.paused:
            self.disturbed()
        since = self.now - PROMPT_SECONDS
        for row in self.tables.events.values():
            waits = max(row.since, self._disturbed_at) < since
            if waits and row.key.startswith("calm") and not self.tables.denied:
                waited = f"row {row.number} waits for {self.now - row.since:.1f} s"
                raise Violation("waits", f"{waited}, {self._said()}", row.key)
        self.scheduler.after(1.0, self._look)

    def _said(self) -> Mapping[str, object]:
        leadership = self._leaders[-1].leadership
        return leadership.about() if leadership else {}

    # --- applications -------------------------------------------------------------------------------

    def _write(self) -> None:
        """Begins a transaction of an application, which commits later, or not."""
        if self._healed:
            return
        chance, began, rows = self.chance, self.steps, []
        for _ in range(chance.choice([1, 1, 2, 4])):
            self._numbers += 1
            number = chance.randint(1, self.scenario["keys"])
            key = f"calm {number}" if number % 2 else f"troubled {number}" if number > 2 else ""
            row = Event(self._numbers, key, began)
            if not number % 2:
                self._trouble(row)
            row.size = chance.choice([10, 10, 30, row.size]) if row.size < LARGE else row.size
            rows.append(row)
        if chance.random() < 0.9:
            late = chance.random() < 0.2
            self.scheduler.after(chance.uniform(0.2, 2.0) if late else 0.01, self._commit, rows)
        self.scheduler.after(chance.expovariate(self.scenario["rate"]), self._write)

    def _trouble(self, row: Event) -> None:
        kinds, chance = self.scenario["kinds"], self.chance
        row.refused = "refuse" in kinds and chance.random() < 0.1
        row.breaks = "break" in kinds and chance.random() < 0.03
        row.size = LARGE if "large" in kinds and chance.random() < 0.05 else row.size

    def _commit(self, rows: Sequence[Event]) -> None:
        for row in rows:
            row.committed, row.since = self.steps, self.now
            if self._healed:
                self._change(row)
            self.tables.events[row.number] = row
            self.counts["written"] += 1
            self.counts["refused"] += row.refused
            self.counts["breaking"] += row.breaks

    # --- what goes wrong ----------------------------------------------------------------------------

    def _happen(self) -> None:
        if self._healed:
            return
        if self.scenario["kinds"]:
            kind = self.chance.choice(self.scenario["kinds"])
            acts = getattr(self, f"_{kind}", None)
            if acts and acts() is not False:
                self.counts[kind] += 1
        self.scheduler.after(self.chance.expovariate(1 / self.scenario["pause"]), self._happen)

    def _lost(self) -> None:
        self._fates.append(self.chance.choice(["before", "after"]))

    def _commits(self) -> None:
        self._fates.append(self.chance.choice(["commit before", "commit after"]))

    def _cancelled(self) -> None:
        self._fates.append("cancelled")

    def _crash(self) -> None:
        self.tables.down_until = self.now + self.chance.uniform(0.1, 3.0)
        for session in [*self.tables.sessions]:
            session.break_off()
        self.scheduler.at(self.tables.down_until, self.disturbed)
        self.disturbed()

    def _switch(self) -> None:
        """Has another server take over; the former primary keeps its connections."""
        self.tables.primary += 1
        for session in [each for each in self.tables.sessions if each.under_way]:
            session.break_off()
        self.disturbed()

    def _kill(self) -> None:
        self.note(f"{self._leaders[-1].host.name} is killed")
        self._leaders[-1].kill()
        self._lead()

    def _suspend(self) -> None:
        leader, seconds = self._leaders[-1], self.chance.choice([0.5, 3.0, 15.0])
        self.note(f"{leader.host.name} stands still for {seconds} s")
        leader.suspend(seconds)
        self.scheduler.after(self.chance.uniform(0.0, seconds), self._lead)
        self.scheduler.after(seconds, self.disturbed)
        self.disturbed()

    def _rivals(self) -> None:
        """Has another leader begin, of whom the former one learns later, or never."""
        former = self._leaders[-1].leadership
        self._lead()
        if former and self.chance.random() < 0.5:
            self.scheduler.after(self.chance.uniform(0.0, 5.0), former.fence, "another leads")

    def _denied(self) -> None:
        self.tables.denied = True
        self.scheduler.after(self.chance.uniform(0.1, 5.0), self._permit)

    def _permit(self) -> None:
        self.tables.denied = False
        self.disturbed()

    def _troubled(self) -> Event | None:
        rows = [
            row for row in self.tables.events.values() if not row.key.startswith("calm") and not row.locked
        ]
        return self.chance.choice(rows) if rows else None

    def _lock(self) -> bool:
        if row := self._troubled():
            row.locked = "application"
            self.note(f"row {row.number} is locked")
            self.scheduler.after(self.chance.uniform(0.1, 8.0), self._unlock, row)
        return row is not None

    @staticmethod
    def _unlock(row: Event) -> None:
        if row.locked == "application":
            row.locked = None

    def _update(self) -> bool:
        if row := self._troubled():
            self._change(row)
        return row is not None

    def _change(self, row: Event) -> None:
        row.version += 1
        row.refused = row.breaks = False
        row.size = 10
        if self.tables.by_commits:  # their order is another one then
            row.inserted = row.committed = self.steps

    def _delete(self) -> bool:
        if row := self._troubled():
            self.note(f"row {row.number} is deleted")
            del self.tables.events[row.number]
        return row is not None
