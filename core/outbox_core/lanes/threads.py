"""A lane group on threads of this process, and how the process is tuned for it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from outbox_core.control.protocol import ControlChannel, LaneControl
from outbox_core.lanes.group import LaneGroup
from outbox_core.lanes.lane import Threads
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.restarts import Restarts
from outbox_core.lanes.running import LaneRun
from outbox_core.lanes.telemetry import Telemetry


def run_group(plan: Plan, group: int, lanes: Sequence[int], channel: ControlChannel) -> None:
    """Runs a lane group on threads of this process; see :meth:`.LaneGroup.run`."""
    threads = Threads()

    def run_lane(number: int, control: LaneControl, telemetry: Telemetry) -> None:
        LaneRun(plan, number, control, telemetry, threads=threads).run()

    LaneGroup(
        plan.token,
        group,
        lanes,
        channel=channel,
        run_lane=run_lane,
        threads=threads,
        interval=plan.limits.min_metrics_interval,
        new_restarts=lambda: Restarts(plan.failures.stop_after, random.random),
        key_names=plan.key_names,
    ).run()
