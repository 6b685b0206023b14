"""One history: a world drawn from a seed, its faults, and the calm in which the outbox must empty."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from typing import Any

from outbox_core.config.settings import Failures, Limits
from outbox_core.mpr import MarkPurgeReset
from outbox_postgres.settled import Settled

from . import statements
from .applications import FOR_GOOD, Applications, Free, Operator
from .audit import Audit, Violation
from .broker import Broker, Producer
from .database import Database
from .election import Coordinator, Election, WallClocks
from .faults import FAULTS
from .lane import Lane
from .process import Process
from .scheduler import Host, Scheduler
from .wire import Wire

CALM_SECONDS = 90.0
"""How long a world without faults may take to empty its outbox."""


@dataclass(frozen=True)
class Parts:
    """What a world is made of; a mutant puts something broken in the place of one of them."""

    machine: type[MarkPurgeReset] = MarkPurgeReset
    lane: type[Lane] = Lane
    producer: type[Producer] = Producer
    settled: type[Settled] = Settled
    mark: type[statements.Mark] = statements.Mark
    purge: type[statements.Purge] = statements.Purge
    reset: type[statements.Reset] = statements.Reset
    park: type[statements.Park] = statements.Park
    bump: type[statements.Bump] = statements.Bump
    free: type[Free] = Free


@dataclass(frozen=True)
class Scenario:
    """What a seed stands for, before anything has happened.

    Attributes:
        seconds: How long faults go on.
        fault_kinds: Which of them happen at all.
        faults_per_second: How many do.
        lossy: Which part of statements and records meets an error also when nobody plans it.
        slow: How long statements may pause when nobody plans it.
        slow_share: In how many of the places where they could.
        wall_clocks: Whether the election is the one that trusts wall clocks.
    """

    seconds: float
    processes: int
    lanes: tuple[int, ...]
    workers: tuple[int, ...]
    keys: int
    transactions_per_second: float
    late_commits: float
    rollbacks: float
    refused: float
    refused_for_good: float
    fault_kinds: tuple[str, ...]
    faults_per_second: float
    lossy: float
    slow: float
    wall_clocks: bool
    limits: Limits
    failures: Failures
    slow_share: float = 0.5
    _shares: dict[int, Limits] = field(default_factory=dict, compare=False, repr=False)

    def limits_of_a_lane(self, lanes: int) -> Limits:
        """Returns the limits with one lane's share of what may be in flight."""
        if lanes not in self._shares:
            share = ceil(self.limits.max_in_flight_records / lanes)
            self._shares[lanes] = replace(self.limits, max_in_flight_records=share)
        return self._shares[lanes]


def draw(chance: Random, kinds: Iterable[str]) -> Scenario:
    """Draws a scenario whose faults are some of ``kinds``."""
    processes = chance.choice((2, 2, 3, 4))
    lanes = chance.choice((1, 1, 2, 3, 4))
    same = chance.random() < 0.6
    enabled = chance.choice((0.2, 0.5, 0.8))
    return Scenario(
        seconds=chance.choice((4.0, 8.0, 12.0)),
        processes=processes,
        lanes=tuple(lanes if same else chance.randint(1, 4) for _ in range(processes)),
        workers=tuple(chance.choice((0, 0, 1, 2, 4)) for _ in range(processes)),
        keys=chance.choice((1, 2, 4, 8, 16)),
        transactions_per_second=chance.choice((2.0, 10.0, 40.0, 100.0)),
        late_commits=chance.choice((0.0, 0.1, 0.4)),
        rollbacks=chance.choice((0.0, 0.05, 0.3)),
        refused=chance.choice((0.0, 0.0, 0.05, 0.2)),
        refused_for_good=chance.choice((0.0, 0.01, 0.05)),
        fault_kinds=tuple(kind for kind in kinds if chance.random() < enabled),
        faults_per_second=chance.choice((0.5, 2.0, 5.0)),
        lossy=chance.choice((0.0, 0.0, 0.02)),
        slow=chance.choice((0.0, 0.0, 0.01, 0.2)),
        wall_clocks=chance.random() < 0.3,
        limits=Limits(
            max_in_flight_records=chance.choice((1, 4, 8, 20)),
            send_buffer=chance.choice((0, 4, 20)),
            mark_query_records=chance.choice((1, 5, 20)),
            queue_timeout=chance.choice((1.0, 3.0, 30.0)),
            io_error_backoff=chance.choice((0.01, 0.1)),
        ),
        failures=Failures(
            first_backoff=chance.choice((0.01, 0.05)),
            longest_backoff=0.4,
            park_after=chance.choice((1, 2, 3)),
            park_retryable_after=chance.choice((None, None, 3)),
            most_parked_keys=chance.choice((1, 100, 100)),
        ),
    )


class World:
    """Everything there is in one history.

    Args:
        seed: What it is drawn from; the same seed makes the same history.
        parts: What it is made of.
        kinds: The faults that may happen.
        trace: Where to write what happens: (time, host, lane, key, text); ``None`` for nowhere.
        fixed: What of the scenario is not drawn.
    """

    def __init__(
        self,
        seed: int,
        parts: Parts | None = None,
        kinds: Iterable[str] = tuple(FAULTS),
        trace: deque[tuple[float, str, int | None, str | None, str]] | None = None,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        self.seed = seed
        self.parts = parts or Parts()
        self.trace = trace
        self.chance = Random(seed)
        self.scenario = replace(draw(self.chance, kinds), **(fixed or {}))
        self.scheduler = Scheduler()
        self.audit = Audit()
        self.faults: Counter[str] = Counter()
        self.database = Database(self.scheduler, self.audit, self.chance)
        self.wire = Wire(self.database, self.chance, self.faults)
        self.broker = Broker(self.scheduler, self.audit, self.chance, self.faults)
        self.sessions = self.runs = self.transactions = 0
        self.frozen: list[Host] = []
        self._moment = 0
        self._leader_ids = 0
        self.database.slow, self.database.slow_share = self.scenario.slow, self.scenario.slow_share
        self.wire.lossy = self.broker.lossy = self.scenario.lossy
        self.election: Election = (WallClocks if self.scenario.wall_clocks else Coordinator)(self)
        self.processes = [self._process(number) for number in range(self.scenario.processes)]
        self.applications = Applications(self)
        self.operator = Operator(self)

    def run(self) -> None:
        """Runs the history.

        Raises:
            Violation: An invariant was broken.
        """
        self._next_fault()
        self.scheduler.run(self.scenario.seconds)
        self._calm_down()
        self._empty_the_outbox()
        self.audit.finish()
        self._check_rest()

    # --- for the parts ------------------------------------------------------------------------------

    def mint(self) -> Any:
        """Returns a leader id; a number, which is quicker than a UUID and as good here."""
        self._leader_ids += 1
        return self._leader_ids

    def moment(self) -> int:
        """Returns a number higher than any before, for what must be told before from after."""
        self._moment += 1
        return self._moment

    def draw_refusals(self) -> int:
        """Returns how often the broker will refuse a new record for good."""
        drawn, scenario = self.chance.random(), self.scenario
        if not self.applications.busy:  # redriven in the calm
            return 0
        if drawn < scenario.refused_for_good:
            return FOR_GOOD
        return self.chance.randint(1, 2) if drawn < scenario.refused_for_good + scenario.refused else 0

    def tell(self, teller: Any, key: str | None, text: str, *arguments: object) -> None:
        """Writes what happens into the trace, if there is one."""
        if self.trace is not None:
            host = teller.host.name if teller is not None else "-"
            lane = teller.number if isinstance(teller, Lane) else None
            self.trace.append((self.scheduler.now, host, lane, key, text % arguments))

    def restart(self, number: int) -> None:
        """Starts a process in the place of one that has died."""
        if not self.processes[number].host.alive:
            self.processes[number] = self._process(number)

    # --- the course of a history --------------------------------------------------------------------

    def _process(self, number: int) -> Process:
        scenario = self.scenario
        lanes = scenario.lanes[number]
        if len(set(scenario.lanes)) > 1:
            lanes = self.chance.choice(scenario.lanes)
        return Process(self, number, lanes, scenario.workers[number], self.election)

    def _next_fault(self) -> None:
        if self.scheduler.now < self.scenario.seconds and self.scenario.fault_kinds:
            self.scheduler.after(self.chance.expovariate(self.scenario.faults_per_second), self._fault)

    def _fault(self) -> None:
        if self.scheduler.now < self.scenario.seconds:
            kind = self.chance.choice(self.scenario.fault_kinds)
            self.faults[kind] += 1
            self.tell(None, None, "fault: %s", kind)
            FAULTS[kind](self)
            self._next_fault()

    def _calm_down(self) -> None:
        self.tell(None, None, "faults cease")
        self.applications.busy = self.operator.busy = False
        self.scheduler.run(self.scheduler.now + 3.0)  # what was begun to last for a while ends meanwhile
        for host in self.frozen:
            host.resume(counted=True)
        for number in range(len(self.processes)):
            self.restart(number)
            self.processes[number].elector.cut_until = 0.0
        self.database.slow = self.wire.lossy = self.wire.late = 0.0
        self.broker.lossy = self.broker.late = self.broker.away_until = self.election.lies_until = 0.0
        if self.database.down:
            self.database.start()

    def _empty_the_outbox(self) -> None:
        """I9, with an operator who cures and frees whatever is parked."""
        until = self.scheduler.now + CALM_SECONDS
        while self.database.rows or self.database.parked or self.database.holders:
            if self.scheduler.now >= until:
                self._stuck()
            self.scheduler.run(self.scheduler.now + 0.5)
            if self.database.parked and self._all_parked():
                self._cure()
                self.operator.act(cure=True)
            elif self.scheduler.now > until - CALM_SECONDS / 2:
                self._cure()  # what is refused for good, but may not be parked as too many keys are
        self.scheduler.run(self.scheduler.now + 1.0)

    def _all_parked(self) -> bool:
        return all(row.key in self.database.parked for row in self.database.rows.values())

    def _cure(self) -> None:
        for number in self.database.rows:
            self.audit.entries[number].refusals = 0

    def _stuck(self) -> None:
        rows = [row for row in self.database.rows.values() if row.key not in self.database.parked]
        row = min(rows, key=lambda row: row.id) if rows else None
        text = f"{len(self.database.rows)} rows are left after {CALM_SECONDS:g} s without faults"
        raise Violation("I9", text, row.key if row else None)

    def _check_rest(self) -> None:
        """I10: with an empty outbox a lane knows nothing and holds nothing."""
        for process in self.processes:
            for group in (group for group in process.groups if group.host.alive):
                for lane in group.running.values():
                    machine = lane.machine
                    board = machine.scoreboard
                    if machine.in_flight or board.waiting or board.held or board.bytes or board.ready:
                        text = f"at rest {machine.in_flight} in flight, {board.waiting} waiting, "
                        text += f"{board.held} held, {board.bytes} bytes"
                        raise Violation("I10", text, lane=lane.number)
