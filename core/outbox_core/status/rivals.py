"""Whether another election names leaders of the same outbox."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from outbox_api import Dialect, DriverError, LaneStatus

from outbox_core.settings import Choice
from outbox_core.status.snapshot import OPERATOR, present_lanes

CURE = "give all harvesters of an outbox the same elector and leaderGroupID"


def leading_lane(dialect: Choice[Dialect]) -> LaneStatus | None:
    """Returns a lane of the process that raised the fence last; ``None`` also if the database does not tell.

    Never raises.
    """
    try:
        with closing(dialect.create().watch()) as view:
            return leading_among(view.lane_statuses())
    except DriverError:
        return None


def leading_among(lanes: Iterable[LaneStatus]) -> LaneStatus | None:
    """Returns a lane of the process that raised the fence last; ``None`` if an operator did, or nobody."""
    present = present_lanes(lanes)
    return None if not present or present[0].holder.startswith(OPERATOR) else present[0]


def rival(lane: LaneStatus, election: str) -> str:
    """Returns that a lane's leader was elected otherwise, in words; empty if it is not known to have been.

    Lanes note their election with each heartbeat, half a second after their start for the first time. Two
    elections without a group, such as two of ``static``, have the same name and cannot be told apart.
    """
    theirs = lane.metrics.get("election")
    if not theirs or theirs == election:
        return ""
    return f"'{lane.holder}' leads this outbox by the election {theirs}, and not by {election}"
