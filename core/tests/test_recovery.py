"""How a lane of exactly-once delivery begins: what is asked of database and broker, and in which order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from outbox_api import (
    Advanced,
    Attempt,
    Batch,
    DriverError,
    Fence,
    Found,
    LeadershipLost,
    MarkedRecord,
    Origin,
    Parked,
    Seam,
    Takeover,
    TransactionalLane,
    Transform,
)
from outbox_core.delivery.checkpoint import decode, encode
from outbox_core.delivery.recovery import Doubt, Entered, Opened
from outbox_core.events import AttemptSettled
from outbox_core.events.metrics import COPIED
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import Begun, begin_leadership, enter_lane, open_lane
from outbox_core.settings import Choice, Delivery, Failures, Limits, Undecided
from outbox_core.transforms.shipped import HeadersOptions

from .fakes import NOW

BATCH = Batch(((10, 12),), "now")
TEXT, NOTHING = encode([BATCH]), encode([])
ATTEMPTED = encode([BATCH], Batch(((20, 23),), "later"))
ROWS = [MarkedRecord(number, "t", "k", "v") for number in (20, 22, 23)]
"""Those of the attempted batch that are still in the outbox."""
HERE, THERE = "cluster/here", "cluster/there"


def name(lane, spelling="public.box"):
    return f"{spelling}.{lane}.x"


def noted(*lanes, of=1, sender="public.box", location=HERE):
    """Returns what the fence notes of lanes that have published."""
    return {lane: TransactionalLane(of, name(lane, sender), location) for lane in lanes}


FENCE = Fence(0, 1, 1, 1, "x")
NOBODY_PARKED = Parked(0, None)
UNDECIDED = Found([20], [22], committed=True, reason="gone")


class World:
    """Database and broker, and what was asked of them.

    Args:
        checkpoints: Name of a sender and place → the checkpoint there.
        notes: What the fence notes.
        token: The leader's.
    """

    name = "public.box"
    fails = ""
    locked: Sequence[Batch] = ()
    found = Found([])
    undecided = Undecided.CHECKPOINT

    def __init__(self, *, checkpoints=None, notes=None, token=1):
        self.asked = []
        self.checkpoints = checkpoints or {}
        self.notes = notes or {}
        self.token = token
        self.published, self.attempted = 3, ROWS
        self.purged: list[Batch] = []
        self.open = self.connections = 0
        self.topic = ""  # of dead letters
        self.opened: Callable[[], object] = lambda: None  # what happens when a sender has been opened

    def plan(self, lanes=1, delivery=Delivery.EXACTLY_ONCE):
        made: Any = SimpleNamespace(create=lambda: self)
        return Plan("box", 1, lanes, made, made, made, Limits(), self.failures(), delivery)

    def settings(self, lanes, delivery=Delivery.EXACTLY_ONCE):
        made, limits = SimpleNamespace(create=lambda: self), Limits(send_concurrency=lanes)
        chosen = {"dialect": made, "publisher": made, "affinity": made, "transforms": (), "topics": ("*",)}
        return SimpleNamespace(
            name="one", outbox="box", **chosen, limits=limits, delivery=delivery, failures=self.failures()
        )

    def failures(self):
        return Failures(undecided=self.undecided, topic=self.topic)

    def origin(self):
        return None

    def takeovers(self):
        self.asked.append("takeovers")
        return [Takeover(2, "moving", NOW)]

    def identity(self):
        assert self.topic, "nothing else needs it"
        return "0123456789ab"

    def connect(self, eligible=()):
        self.connections += 1
        return self

    def lane_statuses(self):
        copied = {COPIED: "2026-03-01T12:00:00+00:00"} if self.topic else {}
        return [
            SimpleNamespace(age=None, metrics={}),
            SimpleNamespace(age=4.0, metrics=copied),
            SimpleNamespace(age=2.5, metrics={}),
        ]

    def bump(self, lanes, holder, expected=None):
        self.asked.append("bump")
        return self.token

    def open_transactional(self, name):
        self.asked.append(f"open {name}")
        self.open += 1
        self.opened()
        return Sender(self, name)

    def enter(self, lane, lanes, token):
        if token != self.token:
            raise LeadershipLost("another process leads")
        self.asked.append(f"enter {lane}")
        return Fence(lane, lanes, token, 1, "x")

    def advance(self, fence, finished, pending, limit):
        assert (limit, pending) == (0, [])
        self.asked.append(f"purge {fence.lane}")
        self.purged += finished
        if fence.token != self.token:
            raise LeadershipLost("another process leads")
        deleted = self.published if BATCH in finished else 0
        self.published -= deleted
        return Advanced(deleted, [], locked=self.locked)

    def rows(self, batch):
        assert batch == Batch(((20, 23),), "later")
        self.asked.append("rows")
        return self.attempted

    def transactional_lanes(self):
        self.asked.append("notes")
        return dict(self.notes)

    def set_transactional(self, fence, note):
        self.asked.append(f"{'note' if note else 'end'} {fence.lane}")
        self.notes.pop(fence.lane, None)
        if note:
            self.notes[fence.lane] = note

    def parked(self):
        self.asked.append("parked")
        return Parked(0, None)

    def pauses(self):
        return ()

    def close(self):
        self.connections -= 1


class Sender:
    """Keeps its checkpoint here."""

    location = HERE

    def __init__(self, world, name):
        self.world = world
        self.name = name

    def attempt(self, location=""):
        self.world.asked.append(f"checkpoint at {location or self.location}")
        text = self.world.checkpoints.get((self.name, location or self.location))
        return None if text is None else Attempt(text, "trace")

    def find(self, records, trace):
        assert (records, trace) in ((ROWS, "trace"), ((), "trace"))
        self.world.asked.append("find")
        return self.world.found

    def publish(self, records, checkpoint):
        assert records == []
        self.world.asked.append(f"publish {self.name}")
        if self.world.fails:
            raise DriverError(self.world.fails, retryable=True)
        self.world.checkpoints[self.name, HERE] = checkpoint
        return []

    def close(self):
        self.world.asked.append(f"close {self.name}")
        self.world.open -= 1


def test_a_lane_of_at_least_once_delivery_opens_no_sender():
    world = World()
    assert enter_lane(world.plan(), 0)[0] == Entered(FENCE, NOBODY_PARKED)
    assert world.asked == ["enter 0", "parked"]
    assert (world.open, world.connections) == (0, 1)


def test_whatever_was_opened_is_closed_after_an_error():
    world = World(
        checkpoints={(name(0, "other"), THERE): TEXT}, notes=noted(0, sender="other", location=THERE)
    )
    world.fails = "the outcome is unknown"
    with pytest.raises(DriverError, match=world.fails):
        open_lane(world.plan(), 0)
    assert (world.open, world.connections) == (0, 0)


def test_a_lane_that_never_ran_writes_a_checkpoint_before_the_fence_notes_that_there_is_one():
    world = World()
    opened, *_ = open_lane(world.plan(), 0)
    own = name(0)
    assert world.asked == [
        *("enter 0", "notes", f"open {own}", f"checkpoint at {HERE}"),
        *("purge 0", f"publish {own}", "note 0", "parked"),
    ]
    assert world.notes == noted(0)
    assert opened == Opened(FENCE, own, NOBODY_PARKED, recovered=0)
    assert world.checkpoints == {(own, HERE): NOTHING}
    assert (world.open, world.connections) == (1, 1)


def test_the_fence_notes_the_transforms_before_anything_is_published_by_them():
    world = World(checkpoints={(name(0), HERE): ATTEMPTED}, notes=noted(0))
    world.found = Found((), committed=True)
    chain: tuple[Choice[Transform], ...] = (
        Choice(Seam.TRANSFORM, "headers", HeadersOptions(set={"a": "b"})),
    )
    opened, sender, _ = open_lane(replace(world.plan(), transforms=chain), 0)
    place = world.notes[0].location
    assert place == sender.location != HERE
    assert opened.doubt == Doubt(3, 0, 3, "its transforms were others than now", 3)
    assert world.asked == [
        *("enter 0", "notes", f"open {name(0)}", f"checkpoint at {HERE}", "rows", "find"),
        *("purge 0", f"publish {name(0)}", "note 0", "purge 0", "parked"),
    ]
    assert open_lane(world.plan(), 0)[1].location == HERE
    assert world.notes == noted(0)
    assert f"checkpoint at {place}" not in world.asked


def test_what_is_in_the_log_is_purged_before_the_checkpoint_forgets_it():
    own = name(0)
    world = World(checkpoints={(own, HERE): TEXT}, notes=noted(0))
    opened, *_ = open_lane(world.plan(), 0)
    assert world.asked[2:-1] == [f"open {own}", f"checkpoint at {HERE}", "purge 0", f"publish {own}"]
    assert opened == Opened(FENCE, own, NOBODY_PARKED, recovered=3, purged=(BATCH,))
    assert world.checkpoints == {(own, HERE): NOTHING}


def test_locked_rows_stay_in_the_checkpoint_of_a_lane_that_begins():
    own = name(0)
    world = World(checkpoints={(own, HERE): TEXT}, notes=noted(0))
    world.locked = [Batch(((11, 11),), "now")]
    opened, *_ = open_lane(world.plan(), 0)
    assert world.checkpoints == {(own, HERE): encode(world.locked)}
    assert (opened.recovered, opened.locked) == (3, world.locked)


@pytest.mark.parametrize(
    ("found", "undecided", "purged"),
    [
        (Found([20, 22, 23]), Undecided.CHECKPOINT, [20, 22, 23]),
        (Found([]), Undecided.PURGE, []),
        (Found([23, 20]), Undecided.PUBLISH, [20, 23]),
        (UNDECIDED, Undecided.CHECKPOINT, [20, 22]),
        (UNDECIDED._replace(committed=False), Undecided.CHECKPOINT, [20]),
        (UNDECIDED, Undecided.PUBLISH, [20]),
        (UNDECIDED._replace(committed=False), Undecided.PURGE, [20, 22]),
    ],
)
def test_of_the_last_attempt_that_is_purged_which_the_log_has(found, undecided, purged):
    world = World(checkpoints={(name(0), HERE): ATTEMPTED}, notes=noted(0))
    world.found, world.undecided = found, undecided
    opened, *_ = open_lane(world.plan(), 0)
    steps = ["rows", "find", "purge 0", f"publish {name(0)}", *(["purge 0"] if purged else [])]
    assert world.asked[4:-1] == steps
    found_batch = [Batch.of(purged, "later")] if purged else []
    assert world.purged == [BATCH, *found_batch]
    assert world.checkpoints[name(0), HERE] == encode(found_batch), "listed before it is purged"
    counts = len(found.published), len(found.undecided)
    assert opened.doubt == Doubt(3, *counts, found.reason, len(purged))
    assert opened.doubt.is_torn == (0 < counts[0] < 3 - counts[1])


def test_an_attempt_without_rows_is_not_looked_for():
    world = World(checkpoints={(name(0), HERE): ATTEMPTED}, notes=noted(0))
    world.attempted = []
    opened, *_ = open_lane(world.plan(), 0)
    assert world.asked[-4:-1] == ["rows", "purge 0", f"publish {name(0)}"]
    assert (world.purged, opened.doubt) == ([BATCH], None)


def test_a_former_lane_is_looked_for_while_its_sender_is_open():
    world = World(checkpoints={(name(0), HERE): ATTEMPTED}, notes=noted(0, of=2))
    world.found = Found([22])
    assert begin_leadership(world.settings(1)).settled == (AttemptSettled(0, 3, 1, 0, 1),)
    assert world.asked[-9:] == [
        *(f"open {name(0)}", f"checkpoint at {HERE}", "rows", "find", "purge 0", f"publish {name(0)}"),
        *("purge 0", f"close {name(0)}", "end 0"),
    ]
    assert world.purged == [BATCH, Batch(((22, 22),), "later")]


class Ends(list[str]):
    """Requests, of which none follows after so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def append(self, asked: str) -> None:
        if len(self) == self._most:
            raise DriverError("killed", retryable=True)
        super().append(asked)


class EqualRows(World):
    """Of three equal rows, which are in the outbox until they are purged, the log has one record."""

    def rows(self, batch):
        self.asked.append("rows")
        gone = {number for each in self.purged for number in each.ids()}
        return [row for row in ROWS if row.id not in gone]

    def open_transactional(self, name):
        sender = super().open_transactional(name)
        sender.find = lambda records, _: Found([row.id for row in records[:1]])
        return sender


@pytest.mark.parametrize("lanes", [1, 2], ids=["own lane", "former lane"])
@pytest.mark.parametrize("requests", range(11))
def test_a_record_of_a_purged_row_is_not_taken_for_that_of_an_equal_one(requests, lanes):
    world = EqualRows(checkpoints={(name(0), HERE): ATTEMPTED}, notes=noted(0, of=lanes))
    world.asked = Ends(requests)

    def begin() -> None:
        begin_leadership(world.settings(1))
        open_lane(world.plan(), 0)

    with pytest.raises(DriverError, match="killed"):
        begin()
    world.asked = []
    begin()
    assert {number for batch in world.purged for number in batch.ids()} == {10, 11, 12, 20}


def test_a_lane_waits_for_more_locked_rows_than_a_checkpoint_can_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("outbox_core.delivery.recovery.MAX_CHECKPOINT", 4000)
    many = encode([Batch.of(random.Random(0).sample(range(200_000), 10_000))])
    world = World(checkpoints={(name(0), HERE): many}, notes=noted(0))
    world.locked = decode(many).published
    with pytest.raises(DriverError, match="locked") as caught:
        open_lane(world.plan(), 0)
    assert caught.value.retryable
    assert world.checkpoints == {(name(0), HERE): many}


def test_a_former_lane_with_locked_rows_is_not_settled():
    world = World(checkpoints={(name(0), HERE): TEXT}, notes=noted(0, of=2))
    world.locked = [BATCH]
    with pytest.raises(DriverError, match="locked") as caught:
        begin_leadership(world.settings(1))
    assert caught.value.retryable
    assert world.purged == [BATCH]
    assert world.notes == noted(0, of=2)


@pytest.mark.parametrize("text", ["4 x", "3 x", "", "2 x"])
def test_a_checkpoint_that_nobody_can_read_is_not_taken_for_an_empty_one(text):
    world = World(checkpoints={(name(0), HERE): text}, notes=noted(0))
    with pytest.raises(DriverError, match="cannot read the checkpoint") as caught:
        open_lane(world.plan(), 0)
    assert not caught.value.retryable
    assert f"checkpoint at {HERE}" in world.asked[-2]


def test_former_lanes_are_settled_at_the_same_time():
    world = World(checkpoints={(name(lane), HERE): TEXT for lane in (0, 3)}, notes=noted(0, 3, of=4))
    barrier = Barrier(2, timeout=60)
    world.opened = barrier.wait  # both senders are open
    assert begin_leadership(world.settings(1)) == Begun(1, 2.5)
    assert world.notes == {}


def test_where_dead_letters_have_a_topic_a_leader_learns_what_is_copied():
    world = World()
    world.topic = "dead-letters"
    copied = "2026-03-01T12:00:00+00:00"
    assert begin_leadership(world.settings(1)) == Begun(1, 2.5, (), (), "0123456789ab", copied)


def test_a_checkpoint_elsewhere_is_read_there_and_one_of_old_here_is_not_trusted():
    own = name(0)
    world = World(checkpoints={(own, THERE): TEXT, (own, HERE): NOTHING}, notes=noted(0, location=THERE))
    assert open_lane(world.plan(), 0)[0].recovered == 3
    assert world.asked[2:4] == [f"open {own}", f"checkpoint at {THERE}"]
    assert world.asked[-3:] == [f"publish {own}", "note 0", "parked"]
    assert world.notes == noted(0)


def test_a_sender_of_another_name_is_fenced_before_anything_is_read_and_its_checkpoint_settled():
    own, former = name(0), name(0, "other")
    checkpoints = {(former, THERE): TEXT, (own, HERE): NOTHING, (former, HERE): NOTHING}
    world = World(checkpoints=checkpoints, notes=noted(0, sender="other", location=THERE))
    assert open_lane(world.plan(), 0)[0].recovered == 3
    assert world.asked == [
        *("enter 0", "notes", f"open {former}", f"checkpoint at {THERE}", f"close {former}"),
        *(f"open {own}", "purge 0", f"publish {own}", "note 0", "parked"),
    ]
    assert world.notes == noted(0)
    assert world.open == 1


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (noted(0), "outbox fence forget"),
        (noted(0, sender="other"), "outbox fence forget"),
    ],
)
def test_a_checkpoint_that_the_broker_has_forgotten_is_not_taken_for_an_empty_one(note, words):
    world = World(notes=dict(note), checkpoints={(name(0), THERE): NOTHING})
    with pytest.raises(DriverError, match=words) as caught:
        open_lane(world.plan(), 0)
    assert not caught.value.retryable
    assert not any("publish" in asked for asked in world.asked)
    assert world.notes == note
    assert world.open == 0


def test_who_is_fenced_meanwhile_writes_over_nothing():
    world = World(checkpoints={(name(0), HERE): NOTHING}, notes=noted(0))
    world.opened = lambda: setattr(world, "token", 2)
    with pytest.raises(LeadershipLost):
        open_lane(world.plan(), 0)
    assert world.asked[-2:] == ["purge 0", f"close {name(0)}"]
    assert world.open == 0


def test_who_is_fenced_does_not_open_the_lane_at_the_broker():
    world = World(token=2)
    with pytest.raises(LeadershipLost):
        open_lane(world.plan(), 0)
    assert world.asked == []


@pytest.mark.parametrize(
    ("notes", "lanes", "delivery", "settled"),
    [
        ({}, 2, Delivery.EXACTLY_ONCE, set()),
        (noted(0, 1, of=2), 2, Delivery.EXACTLY_ONCE, set()),
        (noted(0, 1, 2, of=3), 2, Delivery.EXACTLY_ONCE, {0, 1, 2}),
        (noted(2, of=3, sender="other", location=THERE), 2, Delivery.EXACTLY_ONCE, {2}),
        (noted(0), 2, Delivery.EXACTLY_ONCE, {0}),
        (noted(0, 1, of=2), 2, Delivery.AT_LEAST_ONCE, {0, 1}),
        ({}, 2, Delivery.AT_LEAST_ONCE, set()),
    ],
)
def test_lanes_that_this_term_would_not_read_the_checkpoint_of_are_settled_first(
    notes, lanes, delivery, settled
):
    world = World(
        checkpoints={(note.sender, note.location): TEXT for note in notes.values()}, notes=dict(notes)
    )
    assert begin_leadership(world.settings(lanes, delivery)) == Begun(world.token, 2.5)
    for lane in settled:
        first = ["bump", f"enter {lane}", f"open {notes[lane].sender}", f"purge {lane}", f"end {lane}"]
        assert sorted(first, key=world.asked.index) == first
    assert sum(asked.startswith("end") for asked in world.asked) == len(settled)
    assert world.notes == {lane: note for lane, note in notes.items() if lane not in settled}
    assert (world.open, world.connections) == (0, 0)


class Clusters(World):
    """A world with several clusters, in which the order of the first steps is of interest."""

    def origin(self):
        return Origin(column="cluster_id", own=1, known=(1, 2))


def test_a_leader_reads_the_deliberate_takeovers_once_it_has_raised_the_fence():
    world = Clusters()
    assert begin_leadership(world.settings(1)) == Begun(1, 2.5, (2,))
    assert world.asked == ["bump", "notes", "takeovers"]


def test_a_former_lane_whose_checkpoint_is_gone_ends_the_settlement():
    world = World(notes=noted(0, 1, of=2))
    with pytest.raises(DriverError, match="no checkpoint"):
        begin_leadership(world.settings(1))
    assert world.notes == noted(0, 1, of=2)
    assert (world.open, world.connections) == (0, 0)
