"""Where lanes run: in their leader's own process, or in workers that are started anew when they are lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from outbox_core.engines.runner import GroupEnd, supervise_group
from outbox_core.leadership.leader import Leadership

from .greenlets import Fiber, Sleeper, Then, step
from .group import Group
from .scheduler import Host

if TYPE_CHECKING:
    from .process import Process

CHECK_SECONDS = 0.1
"""How soon it is seen that a group has ended."""
PAUSE_SECONDS = 0.05
"""The pause before a lost group is started anew; shorter than the real one."""


class Engine:
    """Runs the lane groups of one term at a time, as ``outbox_core.engines`` do.

    Args:
        process: The leader.
        workers: How many workers the lanes are spread over; 0 for the leader's own process.

    Attributes:
        groups: The latest incarnation of each group of the latest term.
        busy: How many groups have not ended.
    """

    def __init__(self, process: Process, workers: int) -> None:
        self.groups: list[Group] = []
        self.busy = 0
        self._process = process
        self._workers = workers
        self._starts = 0

    def start(self, leadership: Leadership) -> None:
        """Starts all groups."""
        process = self._process
        self._starts += 1
        lanes = list(range(process.lanes))
        if not self._workers:
            self.groups = [Group(process, leadership, process.host, 0, lanes)]
            self.busy = 1
            self._await_inline(self.groups[0], self._starts)
            return
        shares = [lanes[number :: self._workers] for number in range(min(self._workers, len(lanes)))]
        self.groups = []
        self.busy = len(shares)
        for number, share in enumerate(shares):
            self._supervise(leadership, number, share)

    def cancel(self) -> None:
        """Kills the workers; threads of the leader's own process are left to themselves."""
        for group in self.groups:
            if group.host is not self._process.host:
                group.host.kill()
        if not self._workers:
            self.busy = 0

    def close(self) -> None:
        """Ends whatever is left."""
        self.cancel()

    def _await_inline(self, group: Group, start: int) -> None:
        if group.over and start == self._starts:
            self.busy = 0
        elif not group.over:
            self._process.host.after(CHECK_SECONDS, self._await_inline, group, start)

    # --- workers ------------------------------------------------------------------------------------

    def _supervise(self, leadership: Leadership, number: int, lanes: list[int]) -> None:
        host = self._process.host
        start = self._starts
        supervise = partial(
            supervise_group,
            *(leadership, number, lambda: step(run)),
            clock=host.clock,
            sleep=Sleeper(host).sleep,
            pause=PAUSE_SECONDS,
            early_end_seconds=0.0,
        )

        def run(then: Then) -> None:
            group = Group(self._process, leadership, self._worker(number), number, lanes)
            self.groups = [each for each in self.groups if each.number != number] + [group]
            self._await(group, then)

        def ended(_: object) -> None:
            if start == self._starts:
                self.busy -= 1

        Fiber(host, supervise, ended)

    def _worker(self, number: int) -> Host:
        world = self._process.world
        world.runs += 1
        return Host(f"{self._process.host.name}/worker {number}.{world.runs}", world.scheduler)

    def _await(self, group: Group, then: Then) -> None:
        if group.over or group.replaced or not group.host.alive:
            lost = ConnectionError("the group has ended")
            then(GroupEnd(lost, lost=True, reason=str(lost)))
        else:
            self._process.host.after(CHECK_SECONDS, self._await, group, then)
