"""Deliberate bugs of at-least-once delivery: each breaks a rule that the guarantees rest on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from outbox_api import Changed, DriverError, Failure, MarkedRecord
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Purge
from outbox_core.lanes.lane import Work
from outbox_core.lanes.record_lane import AtLeastOnceLane
from outbox_core.settings import Failures, Limits

from .mutant import Mutant, mutant
from .scenario import Mode

# --- the lane ------------------------------------------------------------------------------------------


class DeafToLostMarks(AtLeastOnceLane):
    def failed(self, work: Work, error: Exception, seconds: float, now: float) -> None:
        if work.name == "mark" and isinstance(error, DriverError):
            self.machine.marked(now, [])
        else:
            super().failed(work, error, seconds, now)


# --- the state machine ---------------------------------------------------------------------------------


class SameLeaderId(MarkPurgeReset):
    def __init__(
        self, limits: Limits, failures: Failures, new_leader_id: Any, chance: Any, **more: Any
    ) -> None:
        leader_id = new_leader_id()
        super().__init__(limits, failures, lambda: leader_id, chance, **more)


class EarlyRelease(MarkPurgeReset):
    def delivered(self, now: float, records: Iterable[MarkedRecord]) -> None:
        before = len(self.scoreboard.purgeable)
        super().delivered(now, records)
        self.scoreboard.release(now, self.scoreboard.purgeable[before:])

    def purged(self, now: float, changed: Changed) -> None:
        self._answered(Purge)
        self.in_flight -= len(self._purging)
        self._purging = []


class TrustedRepeat(MarkPurgeReset):
    _unknown = False

    def finishing_unknown(self, now: float) -> None:
        self._unknown = True
        super().finishing_unknown(now)

    def purged(self, now: float, changed: Changed) -> None:
        super().purged(now, changed._replace(rows=len(self._purging)) if self._unknown else changed)
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
        self.scoreboard.purgeable.extend(failure.record for failure in failures if failure.retryable)


class Greedy(MarkPurgeReset):
    def _room(self) -> int:
        return 0 if self._remark or self._draining else self._limits.mark_query_records


def _mutant(name: str, says: str, invariants: str, budget: int, **parts: Any) -> Mutant:
    return mutant(name, says, invariants, budget, Mode.AT_LEAST_ONCE, **parts)


TRUSTED_REPEAT = replace(
    _mutant("trusted-repeat", "A repeated purge is trusted.", "I2", 40, machine=TrustedRepeat),
    kinds=("database crashes", "late packets"),
    fixed={
        "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 1, "transactions_per_second": 10.0,
        "faults_per_second": 5.0, "seconds": 12.0, "slow": 0.0, "lossy": 0.0, "wall_clocks": False,
        "limits": Limits(
            max_in_flight_records=1, send_buffer=1, mark_query_records=5, max_run_records=1,
            io_error_backoff=0.01,
        ),
        "fault_kinds": ("database crashes", "late packets"),
    },
)  # fmt: skip
"""A full lane marks nothing, so that only its purge meets the crash that forgets its marks."""

RECORD_MUTANTS: Sequence[Mutant] = (
    _mutant("same-leader-id", "A remark keeps the leader id.", "I7", 20, machine=SameLeaderId),
    _mutant("deaf-to-lost-marks", "A lost reply to a mark is taken for an empty one.", "I2 I9", 40,
            lane=DeafToLostMarks),
    _mutant("early-release", "A key is free before its purge is durable.", "I3", 20, machine=EarlyRelease),
    TRUSTED_REPEAT,
    _mutant("unheld", "A failed record does not hold its key.", "I2", 20, machine=Unheld),
    _mutant("optimist", "A delivery whose outcome is unknown is purged.", "I1 I8", 20, machine=Optimist),
    _mutant("greedy", "Marks take no account of what is marked already.", "I10", 20, machine=Greedy),
)  # fmt: skip
