"""One history: a world drawn from a seed, its faults, and the calm in which the outbox must empty."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import inf
from random import Random
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from .applications import Applications
from .audit import Audit
from .broker import ENDING_SECONDS, Broker
from .checkpoints import check_attempted, check_published
from .database import Database
from .election import Coordinator, Election, WallClocks
from .faults import EVERY_FAULT, kinds_of, recovery_steps
from .lane_run import LaneRun
from .leases import Leases
from .operator import Operator
from .pauses import LOOK_SECONDS, PauseAudit, PausingOperator
from .process import Process
from .scenario import NOT_CROWDED, Mode, Parts, draw
from .scheduler import Host, Scheduler
from .trail import FAULTY, FOR_GOOD, TOPICS, Violation
from .transactions import TRANSACTION_SECONDS
from .wire import Wire

LEASES_SHARE = 0.3
"""In which part of the histories without wall clocks a lease in the database says who leads."""
CLOSE_SECONDS = 0.1
"""How long the end of a lane waits for a thread; shorter than the real one."""
CALM_SECONDS = 90.0
"""How long a world without faults may take to empty its outbox."""


class World:
    """Everything there is in one history.

    Args:
        seed: What it is drawn from; the same seed makes the same history.
        parts: What it is made of.
        kinds: The faults that may happen; all that concern the mode for ``None``.
        mode: What harvesters deliver.
        trace: Where to write what happens: (time, host, lane, key, text); ``None`` for nowhere.
        fixed: What of the scenario is not drawn.

    Attributes:
        refused: Whether a lane has refused to begin since an operator has looked after that.
        steps_to_freeze: After how many steps of recoveries a host is frozen; 0 for none.
        lease_clock: How far the clock of the database by which leases run out is ahead of the true time.
    """

    def __init__(
        self,
        seed: int,
        parts: Parts | None = None,
        kinds: Iterable[str] | None = None,
        mode: Mode = Mode.AT_LEAST_ONCE,
        *,
        trace: deque[tuple[float, str, int | None, str | None, str]] | None = None,
        fixed: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.seed = seed
        self.parts = parts or Parts()
        self.trace = trace
        self.chance = Random(seed)
        drawn = draw(self.chance, kinds or kinds_of(mode), mode)
        self.scenario = replace(drawn, **{**NOT_CROWDED, **fixed}) if fixed else drawn
        self.scheduler = Scheduler()
        self.audit = Audit()
        self.audit.flow_seconds = self.scenario.flow_seconds
        if self.scenario.mode is not Mode.EXACTLY_ONCE and self.parts.producer.has_runs:
            self.audit.run_records = self.scenario.limits.max_run_records
        self.faults: Counter[str] = Counter()
        self.database = Database(self.scheduler, self.audit, self.chance)
        self.wire = Wire(self.database, self.chance, self.faults)
        transactional_id = self.parts.transactional_id
        self.broker = Broker(self.scheduler, self.audit, self.chance, self.faults, transactional_id)
        self.refused = False
        self.steps_to_freeze = 0
        self.sessions = self.runs = self.transactions = 0
        self.frozen: list[Host] = []
        self._moment = 0
        self._leader_ids = self._serial = 0
        self.database.slow, self.database.slow_share = self.scenario.slow, self.scenario.slow_share
        self.database.anew, self.database.dates = self.scenario.ids_anew, self.scenario.dates
        self.database.at_once = self.scenario.at_once
        self.broker.characters = self.scenario.characters
        self.broker.attempted = partial(check_published, self.database, self.audit)
        self.broker.asked = partial(check_attempted, self.database)
        self.broker.torn, self.broker.blind = self.scenario.torn, self.scenario.blind
        self.broker.repeated, self.broker.verifies = self.scenario.repeated, self.scenario.verifies
        self.broker.replaced, self.broker.unready = self.scenario.replaced, self.scenario.unready
        self.wire.byte_seconds = self.scenario.byte_seconds
        self.wire.lossy = self.broker.lossy = self.scenario.lossy
        self.lease_clock = 0.0
        self.election = self._election()
        self.processes = [self._process(number) for number in range(self.scenario.processes)]
        self.applications = Applications(self)
        self.operator = Operator(self)
        self.pausing = PausingOperator(self, self.scenario.pauses)
        self.audit.check_paused = PauseAudit(self.database)

    def run(self) -> None:
        """Runs the history.

        Raises:
            Violation: An invariant was broken.
        """
        with ExitStack() as stack:
            for name, value in self.patches().items():
                stack.enter_context(patch(name, value))
            try:
                self._run()
            finally:
                self.scheduler.over = True

    def _run(self) -> None:
        self._next_fault()
        self.scheduler.run(self.scenario.seconds)
        self.audit.check_flow(self.scheduler.now)
        self._calm_down()
        self._empty_the_outbox()
        self.audit.finish()
        self._check_rest()

    # --- for the parts ------------------------------------------------------------------------------

    def patches(self) -> Mapping[str, object]:
        """Returns what of production's modules is replaced as long as the history runs."""
        looks = {"outbox_core.lanes.pauses.LOOK_SECONDS": LOOK_SECONDS if self.scenario.pauses else inf}
        return {**_bounds(self.scenario.characters), **looks, **self.parts.patches}

    def mint(self) -> Any:
        """Returns a leader id; a number, which is quicker than a UUID and as good here."""
        self._leader_ids += 1
        return self._leader_ids

    def serial(self) -> int:
        """Returns the number of a new record."""
        self._serial += 1
        return self._serial

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
            return FAULTY if scenario.transacts and self.chance.random() < 0.5 else FOR_GOOD
        return self.chance.randint(1, 2) if drawn < scenario.refused_for_good + scenario.refused else 0

    def draw_kept(self) -> bool:
        """Returns whether a trigger will keep the row of a new record."""
        # Who may park one key only waits for an operator to free it.
        kept = self.scenario.kept if self.scenario.failures.most_parked_keys > 1 else 0.0
        return bool(kept) and self.applications.busy and self.chance.random() < kept

    def draw_topic(self) -> str:
        """Returns the topic of a new record."""
        return self.chance.choice(TOPICS) if self.scenario.topics > 1 else TOPICS[0]

    def draw_size(self) -> int:
        """Returns how many bytes a new record's value has."""
        return self.chance.choice(self.scenario.sizes)

    def tell(self, teller: Any, key: str | None, text: str, *arguments: object) -> None:
        """Writes what happens into the trace, if there is one."""
        if self.trace is not None:
            host = teller.host.name if teller is not None else "-"
            lane = teller.number if isinstance(teller, LaneRun) else None
            self.trace.append((self.scheduler.now, host, lane, key, text % arguments))

    def recovery_steps(self, host: Host) -> None:
        """Takes that a recovery is about to make a step on a host."""
        recovery_steps(self, host)

    def restart(self, number: int) -> None:
        """Starts a process in the place of one that has died."""
        if not self.processes[number].host.alive:
            self.processes[number] = self._process(number)

    # --- the course of a history --------------------------------------------------------------------

    def _election(self) -> Election:
        leases = self.scenario.leases
        if leases is None:
            leases = Random(f"leases {self.seed}").random() < LEASES_SHARE
        if self.scenario.wall_clocks:
            return WallClocks(self)
        return Leases(self) if leases else Coordinator(self)

    def _process(self, number: int) -> Process:
        scenario = self.scenario
        lanes = scenario.lanes[number]
        if len(set(scenario.lanes)) > 1:
            lanes = self.chance.choice(scenario.lanes)
        deliveries = scenario.mode.deliveries
        delivery = deliveries[0] if len(deliveries) == 1 else self.chance.choice(deliveries)
        workers = scenario.workers[number]
        return Process(self, number, lanes, workers, election=self.election, delivery=delivery,
                       settings=scenario.settings(self.chance))  # fmt: skip

    def _next_fault(self) -> None:
        if self.scheduler.now < self.scenario.seconds and self.scenario.fault_kinds:
            self.scheduler.after(self.chance.expovariate(self.scenario.faults_per_second), self._fault)

    def _fault(self) -> None:
        if self.scheduler.now < self.scenario.seconds:
            kind = self.chance.choice(self.scenario.fault_kinds)
            self.faults[kind] += 1
            self.tell(None, None, "fault: %s", kind)
            EVERY_FAULT[kind](self)
            self._next_fault()

    def _calm_down(self) -> None:
        self.tell(None, None, "faults cease")
        self.applications.busy = self.operator.busy = self.broker.failing = False
        self.audit.flow_seconds = float("inf")
        self.steps_to_freeze = 0
        self.scheduler.run(self.scheduler.now + 3.0)  # what was begun to last for a while ends meanwhile
        for host in self.frozen:
            host.resume(counted=True)
        for number in range(len(self.processes)):
            self.restart(number)
            self.processes[number].elector.cut_until = 0.0
        self.database.slow = self.wire.lossy = self.wire.late = 0.0
        self.broker.lossy = self.broker.late = self.broker.clogged = self.broker.away_until = 0.0
        self.broker.cut_off = {name: until for name, until in self.broker.cut_off.items() if until == inf}
        self.election.lies_until = 0.0
        self.broker.slow, self.broker.torn, self.broker.repeated = ENDING_SECONDS, 0.0, 0.0
        if self.database.down:
            self.database.start()
        self.pausing.end()

    def _empty_the_outbox(self) -> None:
        """I9, with an operator who cures and frees whatever is parked."""
        until = self.scheduler.now + CALM_SECONDS
        while self.database.rows or self.database.parked or self.database.holders:
            if self.scheduler.now >= until:
                self._stuck()
            self.scheduler.run(self.scheduler.now + 0.5)
            if self.refused:
                self.operator.act(cure=True)
            if self.database.parked and self._all_parked():
                self._cure()
                for _ in range(len(self.database.parked)):  # each key may have many rows that were kept
                    self.operator.act(cure=True)
            elif self.scheduler.now > until - CALM_SECONDS / 2:
                self._cure()  # what is refused for good, but may not be parked as too many keys are
        # Transactions that nobody ends are ended by the broker.
        self.scheduler.run(self.scheduler.now + (2 * TRANSACTION_SECONDS if self.scenario.transacts else 1.0))

    def _all_parked(self) -> bool:
        return all(row.key in self.database.parked for row in self.database.rows.values())

    def _cure(self) -> None:
        for row in self.database.rows.values():
            entry = self.audit.entries[row.serial]
            entry.refusals = 0
            if not entry.sent:
                row.size = 1  # an operator permits more bytes
            row.kept = False

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
                    lane.check_rest()


def _bounds(characters: int) -> Mapping[str, object]:
    """Returns the bounds of production's modules where a checkpoint may have so many characters."""
    return {
        "outbox_core.delivery.checkpoint.MAX_BATCH": characters // 2,
        "outbox_core.delivery.coalescing.LEAST_ROWS": 4,
        "outbox_core.delivery.coalescing.MOST_ROWS": 16,
        "outbox_core.delivery.exactly_once.MAX_CHECKPOINT": characters,
        "outbox_core.delivery.exactly_once.MAX_LOCKED": characters // 4,
        "outbox_core.delivery.recovery.MAX_CHECKPOINT": characters,
        "outbox_core.lanes.loops.CLOSE_SECONDS": CLOSE_SECONDS,
        "outbox_core.transforms.torn.MAX_CHECKPOINT": characters,
    }
