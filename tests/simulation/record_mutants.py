"""Deliberate bugs of at-least-once delivery: each breaks a rule that the guarantees rest on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from outbox_core.config.settings import Failures, Limits
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Mark as MarkCommand
from outbox_core.delivery.commands import Park as ParkCommand
from outbox_core.delivery.commands import Purge as PurgeCommand
from outbox_core.delivery.commands import Request
from outbox_core.delivery.commands import Reset as ResetCommand
from outbox_core.lanes.lane import AtLeastOnceLane
from outbox_core.leadership.protocol import LaneControl
from outbox_postgres.settled import Settled
from outbox_sdk import DriverError, Failure, MarkedRecord

from .broker import Packet, Producer
from .database import Database
from .fencing import Bump
from .mutant import Mutant, mutant
from .operator import Free
from .scenario import Mode
from .statements import Mark, Park, Purge, Reset
from .tables import Row

# --- the database side ---------------------------------------------------------------------------------


class UnfencedMark(Mark):
    share_lock = False

    def held(self) -> bool:
        return True


class UnlockedMark(Mark):
    share_lock = False


class AttemptlessMark(Mark):
    def held(self) -> bool:
        row = self.database.fence[self.right.lane]
        return row.token == self.right.token and row.lanes == self.right.lanes


class SkippingMark(Mark):
    skips_locked = True

    def leaves_out(self, row: Row) -> bool:
        return row.lock is not None or super().leaves_out(row)


class ParkedMark(Mark):
    def leaves_out(self, row: Row) -> bool:
        return row.key in self.excluded


class UnfencedPurge(Purge):
    def held(self) -> bool:
        return True


class UnconditionalPurge(Purge):
    def keeps(self, row: Row) -> bool:
        return True


class VolatilePurge(Purge):
    durable = False


class UnconditionalReset(Reset):
    def keeps(self, row: Row) -> bool:
        return True


class UnfencedPark(Park):
    share_lock = False

    def held(self) -> bool:
        return True


class TaillessPark(Park):
    def rows(self, ids: list[int]) -> list[Row]:
        return super().rows([number for number in ids if number in self.heads])


class NarrowBump(Bump):
    def covers(self, lane: int) -> bool:
        return lane < self.lanes


class SilentFree(Free):
    def raise_releases(self, database: Database) -> None:
        """Forgets to."""


class KeptStart(Settled):
    def released(self) -> None:
        """Takes no note of it."""


class ForgottenKeys(Settled):
    def begin(
        self, claimant: object, left_out: Collection[UUID] = (), keys: frozenset[str] = frozenset()
    ) -> int:
        return super().begin(claimant, left_out)


class BlindHorizon(Settled):
    def listed(self, newest: int | None, holders: Collection[str], *, prepared: bool) -> None:
        super().listed(newest, (), prepared=prepared)


# --- the lane ------------------------------------------------------------------------------------------


class DeafToLostMarks(AtLeastOnceLane):
    def _handle_error(self, now: float, request: Request, error: Exception) -> None:
        if isinstance(request, MarkCommand) and isinstance(error, DriverError):
            self.machine.marked(now, [])
        else:
            super()._handle_error(now, request, error)


class Leaseless(AtLeastOnceLane):
    def step(self, now: float, control: LaneControl) -> list[Request]:
        return super().step(now, replace(control, lease_until=float("inf")))


class Hasty(Producer):
    def _depart(self, packet: Packet, delay: float) -> None:
        self._host.after(0.0, self._acknowledge, packet)
        packet.mute = packet.told = True
        super()._depart(packet, delay)


# --- the state machine ---------------------------------------------------------------------------------


class SameLeaderId(MarkPurgeReset):
    def __init__(self, limits: Limits, failures: Failures, new_leader_id: Any, chance: Any) -> None:
        leader_id = new_leader_id()
        super().__init__(limits, failures, lambda: leader_id, chance)


class EarlyRelease(MarkPurgeReset):
    def delivered(self, now: float, records: Iterable[MarkedRecord]) -> None:
        records = list(records)
        super().delivered(now, records)
        self.scoreboard.release(now, records)

    def purged(self, now: float, rows: int) -> None:
        self._answered(PurgeCommand)
        self.in_flight -= len(self._purging)
        self._purging = []


class TrustedRepeat(MarkPurgeReset):
    _unknown = False

    def finishing_unknown(self, now: float) -> None:
        self._unknown = True
        super().finishing_unknown(now)

    def purged(self, now: float, rows: int) -> None:
        super().purged(now, len(self._purging) if self._unknown else rows)
        self._unknown = False


class Unheld(MarkPurgeReset):
    def _hold_failed(self, now: float) -> list[Failure]:
        failed, self._failed = self._failed, []
        self.in_flight -= len(failed)
        self.scoreboard.release(now, [failure.record for failure in failed])
        return failed


class Optimist(MarkPurgeReset):
    def failed(self, failures: Iterable[Failure]) -> None:
        failures = list(failures)
        super().failed(failure for failure in failures if not failure.retryable)
        self._delivered.extend(failure.record for failure in failures if failure.retryable)


class Together(MarkPurgeReset):
    def _next_to_finish(self, now: float) -> PurgeCommand | ResetCommand | ParkCommand | None:
        mark, self._mark = self._mark, None
        try:
            return super()._next_to_finish(now)
        finally:
            self._mark = mark

    def _next_mark_command(self, now: float) -> MarkCommand | None:
        settling, self._finishing = self._finishing, None
        try:
            return super()._next_mark_command(now)
        finally:
            self._finishing = settling


class Greedy(MarkPurgeReset):
    def _room(self) -> int:
        return 0 if self._remark or self._draining else self._limits.mark_query_records


def _mutant(name: str, says: str, invariants: str, budget: int, **parts: Any) -> Mutant:
    return mutant(name, says, invariants, budget, Mode.AT_LEAST_ONCE, first=FIRST.get(name, 1), **parts)


FIRST = {
    "unfenced-purge": 90,
    "volatile-purge": 79,
    "skipping-mark": 9,
}
"""Where the search begins, so that it is short; from seed 1 on these take up to as many histories more."""


SKIPPING_MARK = replace(
    _mutant("skipping-mark", "A mark skips rows that are locked.", "I2", 40, mark=SkippingMark),
    kinds=("elector lies",),
    fixed={
        "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 2, "transactions_per_second": 40.0,
        "faults_per_second": 2.0, "slow": 1.0, "slow_share": 0.15, "lossy": 0.02, "seconds": 8.0,
        "refused_for_good": 0.0,
        "fault_kinds": ("elector lies",), "refused": 0.5,
        "failures": Failures(first_backoff=0.01, longest_backoff=0.05, park_after=5),
    },
)  # fmt: skip
"""A row must be locked by a slow reset of the leader before."""

NARROW_BUMP = replace(
    _mutant("narrow-bump", "A leader raises the token of its own lanes only.", "I2 I5", 40, bump=NarrowBump),
    kinds=("elector lies", "handovers", "late packets"),
    first=5,
    fixed={
        "processes": 2, "lanes": (4, 1), "workers": (4, 0), "keys": 8, "transactions_per_second": 40.0,
        "faults_per_second": 5.0, "seconds": 8.0, "wall_clocks": False, "slow": 0.0, "refused_for_good": 0.0,
        "fault_kinds": ("elector lies", "handovers", "late packets"),
    },
)  # fmt: skip
"""The old leader's other lanes must have workers of their own, or hear at once that it is over."""

TRUSTED_REPEAT = replace(
    _mutant("trusted-repeat", "A repeated purge is trusted.", "I2", 40, machine=TrustedRepeat),
    kinds=("database crashes", "late packets"),
    fixed={
        "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 1, "transactions_per_second": 10.0,
        "faults_per_second": 5.0, "seconds": 12.0, "slow": 0.0, "lossy": 0.0, "wall_clocks": False,
        "limits": Limits(max_in_flight_records=1, send_buffer=1, mark_query_records=5, io_error_backoff=0.01),
        "fault_kinds": ("database crashes", "late packets"),
    },
)  # fmt: skip
"""A full lane marks nothing, so that only its purge meets the crash that forgets its marks."""

UNCONDITIONAL_PURGE = replace(
    _mutant("unconditional-purge", "A purge ignores the leader id.", "I4", 120, purge=UnconditionalPurge),
    kinds=("database crashes", "elector lies", "late network"),
    fixed={
        "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 2, "transactions_per_second": 40.0,
        "faults_per_second": 5.0, "seconds": 8.0, "slow": 0.2, "lossy": 0.0, "wall_clocks": False,
        "refused": 0.0, "refused_for_good": 0.0,
        "fault_kinds": ("database crashes", "elector lies", "late network"),
    },
)  # fmt: skip
"""A purge must meet rows that are marked anew: the database has forgotten marks, or the purge is late."""

UNFENCED_PARK = replace(
    _mutant("unfenced-park", "A park does not look at the fence.", "I4", 20, park=UnfencedPark),
    kinds=("elector lies", "frozen copies"),
    fixed={
        "processes": 2, "lanes": (1, 1), "workers": (1, 1), "keys": 4, "transactions_per_second": 40.0,
        "faults_per_second": 5.0, "seconds": 8.0, "slow": 0.2, "slow_share": 0.15, "lossy": 0.0,
        "wall_clocks": False, "refused": 0.0, "refused_for_good": 0.1,
        "fault_kinds": ("elector lies", "frozen copies"),
        "failures": Failures(first_backoff=0.01, longest_backoff=0.05, park_after=1),
    },
)  # fmt: skip
"""Much must be parked while two believe that they lead."""

ATTEMPTLESS_MARK = replace(
    _mutant("attemptless-mark", "A mark does not check the attempt.", "I4", 40, mark=AttemptlessMark),
    kinds=("frozen copies",),
    fixed={
        "processes": 1, "lanes": (1,), "workers": (1,), "keys": 8, "transactions_per_second": 40.0,
        "faults_per_second": 5.0, "seconds": 8.0, "slow": 0.2, "wall_clocks": False, "refused_for_good": 0.0,
        "fault_kinds": ("frozen copies",),
    },
)  # fmt: skip
"""A mark of a frozen copy must be in the database when the next copy enters the lane."""

RECORD_MUTANTS: Sequence[Mutant] = (
    _mutant("unfenced-mark", "A mark does not look at the fence.", "I4", 20, mark=UnfencedMark),
    _mutant("unlocked-mark", "A mark checks the fence but does not hold it.", "I4", 40, mark=UnlockedMark),
    ATTEMPTLESS_MARK,
    SKIPPING_MARK,
    _mutant("parked-mark", "A mark takes rows of parked keys.", "parked", 20, mark=ParkedMark),
    _mutant("unfenced-purge", "A purge does not look at the fence.", "I5", 100, purge=UnfencedPurge),
    UNCONDITIONAL_PURGE,
    _mutant("volatile-purge", "A purge does not wait for the disk.", "I2", 100, purge=VolatilePurge),
    _mutant("unconditional-reset", "A reset ignores the leader id.", "I4", 40, reset=UnconditionalReset),
    UNFENCED_PARK,
    _mutant("tailless-park", "A park leaves the leader id in the tail.", "I2 I9", 40, park=TaillessPark),
    NARROW_BUMP,
    _mutant("silent-free", "Freeing a key does not raise the releases.", "I2 I9", 40, free=SilentFree),
    _mutant("kept-start", "The low-water start is kept after a release.", "I2 I9", 40, drained=KeptStart),
    _mutant("forgotten-keys", "Rows of a key that was excluded are taken for settled.", "I2 I9", 40,
            drained=ForgottenKeys),
    _mutant("blind-horizon", "The horizon passes open transactions.", "I2 I9", 40, drained=BlindHorizon),
    _mutant("same-leader-id", "A remark keeps the leader id.", "I7", 20, machine=SameLeaderId),
    _mutant("deaf-to-lost-marks", "A lost reply to a mark is taken for an empty one.", "I2 I9", 40,
            lane=DeafToLostMarks),
    _mutant("leaseless", "Nobody looks at the lease, and marks not at the fence.", "I4", 20,
            lane=Leaseless, mark=UnfencedMark),
    _mutant("hasty", "A record counts as delivered once it is sent.", "I1", 40, producer=Hasty),
    _mutant("early-release", "A key is free before its purge is durable.", "I3", 20, machine=EarlyRelease),
    TRUSTED_REPEAT,
    _mutant("unheld", "A failed record does not hold its key.", "I2", 20, machine=Unheld),
    _mutant("optimist", "A delivery whose outcome is unknown is purged.", "I8", 20, machine=Optimist),
    _mutant("together", "A mark and a reset are out together.", "I2 I9", 40, machine=Together),
    _mutant("greedy", "Marks take no account of what is marked already.", "I10", 20, machine=Greedy),
)  # fmt: skip
