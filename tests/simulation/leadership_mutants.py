"""Deliberate bugs in what follows when leadership comes and goes, and in how lanes are kept alive.

They mutate ``outbox_core.leadership.candidacy`` and, in ``outbox_core.lanes``, ``group`` and ``restarts``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from outbox_api import DriverError
from outbox_api.election import LeaseWatch
from outbox_core.lanes.group import LaneGroup
from outbox_core.lanes.restarts import Restarts
from outbox_core.leadership.actions import Actions
from outbox_core.leadership.candidacy import Candidacy
from outbox_core.leadership.timeouts import Timeouts

from .mutant import Mutant, mutant
from .scenario import Mode


class KeptToken(Candidacy):
    """Raises the fence for its first term only."""

    def __init__(self, timeouts: Timeouts, actions: Actions, **more: Any) -> None:
        actions.become_leader = cache(actions.become_leader)  # type: ignore[method-assign]
        super().__init__(timeouts, actions, **more)


class Unreturned(Candidacy):
    """Leaves the election for good when its lanes are silent."""

    def _stand_by_anew(self) -> None:
        self._actions.leave_election()
        self.elected = self._resigned = False
        self._actions.close_engine()


class Abandoned(LaneGroup):
    """Does not start a lane anew that has failed."""

    def supervise(self, number: int) -> None:
        try:
            self._run_lane(number, self.control, self._begin(number, self._clock()))
        except DriverError:
            self._retire(number)


class GivenUp(Restarts):
    def failed(self, now: float, *, lasted: float, purged: int, retryable: bool) -> float | None:
        return None


class Clinging(Candidacy):
    """Keeps its office though nothing is acknowledged."""

    def _has_run_out(self, seconds: float) -> bool:
        return False


class TrustingClock(LeaseWatch):
    """Believes the database's clock alone."""

    def left(self, state: object, seconds: float) -> float:
        return float("inf")


ALONE: Mapping[str, Any] = {
    "processes": 1, "lanes": (2,), "workers": (1,), "wall_clocks": False, "leases": False, "seconds": 8.0,
    "faults_per_second": 2.0,
}  # fmt: skip
"""One process: nobody else leads when it does not."""


def _mutant(name: str, says: str, **parts: Any) -> Mutant:
    return mutant(name, says, "I9", 20, Mode.AT_LEAST_ONCE, **parts)


def _under(faults: str, each: Mutant, **fixed: Any) -> Mutant:
    """Returns a mutant that is hunted where one process is alone, under a few kinds of faults."""
    kinds = tuple(faults.split(", "))
    return replace(each, kinds=kinds, fixed={**ALONE, "fault_kinds": kinds, **fixed})


LEADERSHIP_MUTANTS: Sequence[Mutant] = (
    _under("crashes, handovers", processes=2, lanes=(1, 1), workers=(0, 0), each=replace(_mutant(
        "kept-token", "A leader raises the fence for its first term only.", candidacy=KeptToken), budget=60)),
    _under("pauses", _mutant(
        "unreturned", "Who has resigned joins no election any more.", candidacy=Unreturned)),
    _under("broker unreachable", processes=2, lanes=(1, 1), workers=(0, 0), leases=False, each=_mutant(
        "clinging", "A leader keeps its office though nothing is acknowledged.", candidacy=Clinging)),
    _under("crashes, lease clock steps", processes=2, lanes=(1, 1), workers=(0, 0), leases=True, each=_mutant(
        "trusting-clock", "Who wants the lease believes the database's clock alone.",
        lease_watch=TrustingClock)),
    _under("lane restarts", _mutant(
        "abandoned", "A lane that has failed is not started anew.", group=Abandoned)),
    _mutant("given-up", "A lane that fails once is taken for refused for good.", restarts=GivenUp),
)  # fmt: skip
