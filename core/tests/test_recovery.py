"""How a lane of exactly-once delivery begins: what is asked of database and broker, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from outbox_core.config.settings import Delivery, Failures, Limits
from outbox_core.lane import Plan
from outbox_core.recovery import open_lane, settle_lanes
from outbox_sdk import Advanced, Batch, DriverError, Fence, LeadershipLost, Parked

BATCH = Batch(UUID(int=1), 10, 20)


class World:
    """Database and broker, and what was asked of them."""

    def __init__(self, *, markers=None, noted=None, token=1):
        self.asked = []
        self.markers = markers or {}
        self.noted = noted or {}
        self.token = token
        self.open = 0

    def plan(self, lanes=1, delivery=Delivery.EXACTLY_ONCE):
        made: Any = SimpleNamespace(create=lambda: self)
        return Plan("box", 1, lanes, made, made, made, Limits(), Failures(), delivery)

    def connect(self):
        return self

    def open_transactional(self, name):
        lane = int(name.removeprefix("box.").removesuffix(".x"))
        self.asked.append(f"open {lane}")
        self.open += 1
        return Sender(self, lane)

    def enter(self, lane, lanes, token):
        if token != self.token:
            raise LeadershipLost("another process leads")
        self.asked.append(f"enter {lane}")
        return Fence(lane, lanes, token, 1, "x")

    def advance(self, fence, finished, leader_id, limit, pending):
        assert (limit, pending) == (0, [])
        self.asked.append(f"purge {fence.lane}")
        return Advanced(len(finished) * 3, [])

    def transacting(self):
        return dict(self.noted)

    def transact(self, fence, *, begun):
        self.asked.append(f"{'begin' if begun else 'end'} {fence.lane}")
        self.noted.pop(fence.lane, None)
        if begun:
            self.noted[fence.lane] = fence.lanes

    def parked(self):
        return Parked(0, None)

    def close(self):
        pass


class Sender:
    def __init__(self, world, lane):
        self.world = world
        self.lane = lane

    def marker(self):
        self.world.asked.append(f"marker {self.lane}")
        return self.world.markers.get(self.lane)

    def publish(self, records, marker):
        assert (records, marker) == ([], [])
        self.world.asked.append(f"publish {self.lane}")
        return []

    def close(self):
        self.world.open -= 1


def test_a_lane_that_never_ran_writes_a_marker_before_the_fence_notes_that_there_is_one():
    world = World()
    opened = open_lane(world.plan(), 0)
    assert world.asked == ["enter 0", "open 0", "marker 0", "publish 0", "begin 0"]
    assert opened.recovered == 0
    assert world.open == 1


def test_what_is_in_the_log_is_purged_before_the_marker_forgets_it():
    world = World(markers={0: [BATCH]}, noted={0: 1})
    opened = open_lane(world.plan(), 0)
    assert world.asked == ["enter 0", "open 0", "marker 0", "purge 0", "publish 0"]
    assert opened.recovered == 3


def test_a_marker_that_the_broker_has_forgotten_is_not_taken_for_an_empty_one():
    world = World(noted={0: 1})
    with pytest.raises(DriverError, match="outbox fence forget") as caught:
        open_lane(world.plan(), 0)
    assert not caught.value.retryable
    assert "publish 0" not in world.asked
    assert world.open == 0


def test_who_is_fenced_does_not_open_the_lane_at_the_broker():
    world = World(token=2)
    with pytest.raises(LeadershipLost):
        open_lane(world.plan(), 0)
    assert world.asked == []


@pytest.mark.parametrize(
    ("noted", "lanes", "delivery", "settled"),
    [
        ({}, 2, Delivery.EXACTLY_ONCE, set()),
        ({0: 2, 1: 2}, 2, Delivery.EXACTLY_ONCE, set()),
        ({0: 3, 1: 3, 2: 3}, 2, Delivery.EXACTLY_ONCE, {0, 1, 2}),
        ({2: 3}, 2, Delivery.EXACTLY_ONCE, {2}),
        ({0: 1}, 2, Delivery.EXACTLY_ONCE, {0}),
        ({0: 2, 1: 2}, 2, Delivery.AT_LEAST_ONCE, {0, 1}),
        ({}, 2, Delivery.AT_LEAST_ONCE, set()),
    ],
)
def test_lanes_that_this_term_would_not_read_the_marker_of_are_settled_first(noted, lanes, delivery, settled):
    world = World(markers={lane: [BATCH] for lane in noted}, noted=dict(noted))
    settle_lanes(world.plan(lanes, delivery), noted)
    for lane in settled:
        own = [asked for asked in world.asked if asked.endswith(f" {lane}")]
        assert own == [f"{verb} {lane}" for verb in ("enter", "open", "marker", "purge", "end")]
    assert len(world.asked) == 5 * len(settled)
    assert world.noted == {lane: count for lane, count in noted.items() if lane not in settled}
    assert world.open == 0


def test_a_former_lane_whose_marker_is_gone_ends_the_settlement():
    world = World(noted={0: 2, 1: 2})
    with pytest.raises(DriverError, match="no marker"):
        settle_lanes(world.plan(1), world.noted)
    assert world.noted == {0: 2, 1: 2}
    assert world.open == 0
