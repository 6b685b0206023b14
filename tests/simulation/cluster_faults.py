"""What goes wrong between clusters, or is changed on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .cluster_trail import Trouble

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld


class ClusterFaults:
    """Plans what happens in one world.

    Args:
        world: The world.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._chance = world.chance
        self._scenario = world.scenario

    def plan(self, kind: str) -> None:
        """Plans one kind of the scenario."""
        getattr(self, f"_{kind.replace(' ', '_')}")()

    # --- losses -------------------------------------------------------------------------------------

    def _loss(self) -> None:
        self._while_writing(0.2, 0.4, self._lose)

    def _second_loss(self) -> None:
        self._while_writing(0.5, 0.8, self._lose)

    def _return(self) -> None:
        """Lost clusters return; see :meth:`_lose`."""

    def _lose(self) -> None:
        """A cluster is lost: its harvester, or its database as well. One always lives."""
        world, running = self._world, self._running()
        if len(running) < 2 or (world.growing and len(world.lost) + 2 >= self._scenario.count):
            return
        number = self._chance.choice(running)
        whole = self._chance.random() < 0.5
        world.lost.add(number)
        world.kill(number)
        world.trail.losses += 1
        world.trail.counts["losses"] += 1
        trouble = world.trail.trouble(frozenset([number]))
        if whole:
            world.replicas[number].up = False
        if "return" in self._scenario.kinds:
            self._delays_later(0.5, 2.5, self._come_back, number, trouble)

    def _come_back(self, number: int, trouble: Trouble) -> None:
        world = self._world
        world.lost.discard(number)
        world.replicas[number].up = True
        world.returned[number] = world.now
        self._resume_links()
        world.at(world.now + self._chance.choice([0.0, 1.0]), world.lead, number)
        world.trail.over(trouble)

    # --- links --------------------------------------------------------------------------------------

    def _cut(self) -> None:
        self._while_writing(0.1, 0.6, self._part)

    def _part(self) -> None:
        """Cuts all links between two groups of clusters."""
        world = self._world
        left = {number for number in world.numbers if self._chance.random() < 0.5}
        trouble = world.trail.trouble(frozenset(world.numbers))
        for (source, target), link in world.links.items():
            link.up = (source in left) == (target in left)
        self._delays_later(0.3, 2.5, self._heal, trouble)

    def _heal(self, trouble: Trouble) -> None:
        for link in self._world.links.values():
            link.up = True
        self._resume_links()
        self._world.trail.over(trouble)

    def _resume_links(self) -> None:
        for link in self._world.links.values():
            if link.works:
                link.resume()

    # --- clocks -------------------------------------------------------------------------------------

    def _skew(self) -> None:
        for replica in self._world.replicas.values():
            self._set_clock(replica)

    def _steps(self) -> None:
        for _ in range(6):
            replica = self._world.replicas[self._chance.choice(self._world.numbers)]
            self._while_writing(0.0, 1.0, self._set_clock, replica)

    def _set_clock(self, replica: Any) -> None:
        replica.skew = self._chance.uniform(-self._scenario.skew, self._scenario.skew)

    # --- what operators do --------------------------------------------------------------------------

    def _restarts(self) -> None:
        for _ in range(3):
            self._while_writing(0.0, 1.0, self._restart, self._chance.choice(self._world.numbers))

    def _restart(self, number: int) -> None:
        world = self._world
        if number in world.harvesters and number not in world.lost:
            world.kill(number)
            world.at(world.now + self._chance.uniform(0.2, 0.8), world.lead, number)

    def _growth(self) -> None:
        """One more cluster: first all others are told, one after the other, then it begins."""
        if not self._world.growing:
            return
        moment = self._scenario.seconds * 0.2
        for number in self._world.numbers:
            moment += self._chance.uniform(0.1, 1.0)
            self._world.at(moment, self._tell, number)

    def _tell(self, number: int) -> None:
        self._world.known[number] = self._scenario.count
        if number == self._scenario.count:
            self._world.open(number)
        else:
            self._restart(number)

    def _takeover(self) -> None:
        self._while_writing(0.1, 0.3, self._begin_takeover)

    def _begin_takeover(self) -> None:
        """One cluster stops, and another is told to take its rows at once."""
        world, running = self._world, self._running()
        if len(running) < 2:
            return
        stopped, other = self._chance.sample(running, 2)
        trouble = world.trail.trouble(frozenset([stopped]))
        world.lost.add(stopped)
        world.kill(stopped)
        world.taken_over[other] = (stopped,)
        world.lead(other)
        self._delays_later(0.5, 1.5, self._end_takeover, stopped, other, trouble)

    def _end_takeover(self, stopped: int, other: int, trouble: Trouble) -> None:
        world = self._world
        world.taken_over[other] = ()
        world.lead(other)
        world.lost.discard(stopped)
        world.at(world.now + 0.1, world.lead, stopped)
        world.trail.over(trouble)

    # --- when, and who ------------------------------------------------------------------------------

    def _running(self) -> list[int]:
        world = self._world
        return sorted(n for n, each in world.harvesters.items() if each.alive and n not in world.lost)

    def _while_writing(self, least: float, most: float, action: Callable[..., None], *arguments: Any) -> None:
        """Plans something between these shares of the time in which applications write."""
        moment = self._scenario.seconds * self._chance.uniform(least, most)
        self._world.at(moment, action, *arguments)

    def _delays_later(self, least: float, most: float, action: Callable[..., None], *arguments: Any) -> None:
        """Plans something so many maximum delays from now."""
        moment = self._world.now + self._scenario.delay * self._chance.uniform(least, most)
        self._world.at(moment, action, *arguments)
