"""How the leaderships of several outboxes spread over processes, in virtual time."""

from __future__ import annotations

import random

import pytest
from outbox_core.harvest.rebalance import STEADY_SECONDS, UNWANTED_SECONDS, Rebalance, excess

TICK = 2.0
ASIDE = 5.0


class World:
    """Processes that compete for outboxes; somebody who stands by takes over what is given up, at random."""

    def __init__(self, outboxes: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.leaders: dict[str, str | None] = {f"box-{number}": None for number in range(outboxes)}
        self.aside: dict[tuple[str, str], float] = {}
        self.spreads: dict[str, Rebalance] = {}
        self.now = 100.0
        self.moves = 0

    def join(self, *names: str) -> None:
        for name in names:
            self.spreads[name] = Rebalance(name)
        self.elect()

    def end(self, name: str) -> None:
        del self.spreads[name]
        self.leaders = {box: None if leader == name else leader for box, leader in self.leaders.items()}
        self.elect()

    def elect(self) -> None:
        for box, leader in self.leaders.items():
            standing_by = [name for name in self.spreads if self.aside.get((box, name), 0) <= self.now]
            if leader is None and standing_by:
                self.leaders[box] = self.chance.choice(standing_by)

    def led(self, name: str) -> list[str]:
        return [box for box, leader in self.leaders.items() if leader == name]

    def counts(self) -> dict[str, int]:
        return {name: len(self.led(name)) for name in self.spreads}

    def run(self, seconds: float) -> None:
        noted = self.counts()
        until = self.now + seconds
        while self.now < until:
            self.now += TICK
            self.elect()
            for name, spread in self.spreads.items():
                for box in spread.to_give_up(self.led(name), noted, self.now):
                    self.aside[box, name] = self.now + ASIDE
                    self.leaders[box] = None
                    self.moves += 1
            noted = self.counts()
            self.elect()

    @property
    def even(self) -> bool:
        counts = self.counts().values()
        return max(counts) - min(counts) <= 1 and None not in self.leaders.values()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("outboxes", "processes"), [(10, 3), (3, 3), (2, 3), (100, 4), (1, 2)])
def test_leaderships_even_out_when_a_process_joins_and_when_one_ends(
    outboxes: int, processes: int, seed: int
) -> None:
    world = World(outboxes, seed)
    first, *others = (f"p{number}" for number in range(processes))
    world.join(first)
    world.run(20)
    assert world.counts() == {first: outboxes}
    assert world.moves == 0, "there is nobody to hand anything to"
    world.join(*others)
    world.run(120)
    assert world.even, world.counts()
    moves = world.moves
    assert moves <= 3 * outboxes
    world.run(60)
    assert world.moves == moves, "what is even stays as it is"
    world.end(first)
    world.run(120)
    assert world.even, world.counts()


def test_nothing_is_given_up_while_processes_come_and_go() -> None:
    spread, led = Rebalance("a"), ["x", "y", "z", "w"]
    for second in range(0, 40, 2):
        members = {"a": 4, "b": 0} if second % 4 else {"a": 4}
        assert not spread.to_give_up(led, members, second)


def test_an_outbox_that_nobody_else_takes_is_not_given_up_again_and_again() -> None:
    spread, members = Rebalance("a"), {"a": 2, "b": 0}
    given: list[tuple[float, str]] = []
    led, back = ["x", "y"], 0.0
    for now in range(0, 400, 2):
        if now >= back:
            led = ["x", "y"]
        for box in spread.to_give_up(led, members | {"a": len(led)}, now):
            given.append((now, box))
            led, back = [each for each in led if each != box], now + 6
    assert [box for _, box in given] == ["x", "y"], "each was tried once"
    assert given[0][0] >= STEADY_SECONDS
    assert not spread.to_give_up(["x", "y"], members, 400)
    assert list(spread.to_give_up(["x", "y"], members, 400 + UNWANTED_SECONDS)) == ["x"]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"a": 5}, 0),
        ({"a": 5, "b": 5}, 0),
        ({"a": 10, "b": 0}, 5),
        ({"a": 4, "b": 4, "c": 2}, 1),
        ({"b": 4, "a": 4, "c": 2}, 1),
        ({"a": 4, "b": 3, "c": 3}, 0),
        ({"a": 1, "b": 0}, 0),
        ({"a": 4, "b": 5, "c": 0}, 1),
    ],
)
def test_the_excess_is_what_lies_above_the_mean(counts: dict[str, int], expected: int) -> None:
    assert excess("a", counts) == expected
