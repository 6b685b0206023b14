"""Whether another election names leaders of the same outbox."""

from __future__ import annotations

from contextlib import closing
from math import inf

from outbox_sdk import Dialect, DriverError

from outbox_core.config.settings import Choice
from outbox_core.snapshot import present_lanes, silence

CURE = "give all harvesters of an outbox the same elector and leaderGroupID"


def find_rival(dialect: Choice[Dialect], election: str, longest_silence: float = inf) -> str:
    """Returns who leads an outbox by another election, in words; empty if nobody is known to.

    Lanes note their election with each heartbeat. Two elections without a group, such as two of ``static``,
    have the same name and cannot be told apart. Never raises.

    Args:
        dialect: The outbox.
        election: The election of this process, see :func:`outbox_core.config.election.election_of`.
        longest_silence: Seconds without a heartbeat after which a lane does not count.
    """
    try:
        with closing(dialect.create().watch()) as view:
            lanes = present_lanes(view.lane_statuses())
    except DriverError:
        return ""
    for lane in lanes:
        theirs = lane.metrics.get("election")
        if theirs and theirs != election and silence(lane) <= longest_silence:
            return f"'{lane.holder}' leads this outbox by the election {theirs}, and not by {election}"
    return ""
