"""How a lane of exactly-once delivery begins: what is asked of database and broker, and in which order."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from outbox_core.config.settings import Delivery, Failures, Limits, Undecided
from outbox_core.delivery.checkpoint import encode
from outbox_core.delivery.recovery import Doubt, Entered, Opened, Recovered, Recovery, TakenOver, take_over
from outbox_core.delivery.requests import (
    CloseSender,
    Enter,
    FindPublished,
    OpenSender,
    PurgeBatches,
    RaiseFence,
    ReadCheckpoint,
    ReadNotes,
    ReadParked,
    ReadRows,
    ReadTableName,
    RunAll,
    WriteCheckpoint,
    WriteNote,
)
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import Begun, begin_leadership, enter_lane, open_lane
from outbox_sdk import (
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
    Takeover,
    TransactionalLane,
)

from .fakes import NOW

BATCH = Batch(((10, 12),), "now")
TEXT, NOTHING = encode([BATCH]), encode([])
PUBLISHED = Attempt(TEXT, "trace")
ATTEMPTED = Attempt(encode([BATCH], Batch(((20, 23),), "later")), "trace")
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
BATCHES = Delivery.EXACTLY_ONCE
RECOVERY = Recovery(1, 1, BATCHES)


def conversation(steps, *replies):
    """Sends replies into a generator; returns its requests, and what it returned."""
    requests = [next(steps), *(steps.send(reply) for reply in replies[:-1])]
    with pytest.raises(StopIteration) as ended:
        steps.send(replies[-1])
    return requests, ended.value.value


def test_a_lane_of_at_least_once_delivery_asks_for_its_fence_and_what_is_parked():
    requests, entered = conversation(RECOVERY.enter(0), FENCE, NOBODY_PARKED)
    assert requests == [Enter(0, 1, 1), ReadParked()]
    assert entered == Entered(FENCE, NOBODY_PARKED)


def test_a_lane_asks_for_one_thing_after_the_other():
    own, former = name(0), name(0, "other")
    note = noted(0, sender="other", location=THERE)
    replies = [
        FENCE,
        note,
        "public.box",
        THERE,
        PUBLISHED,
        None,
        HERE,
        Advanced(3, []),
        None,
        None,
        NOBODY_PARKED,
    ]
    requests, opened = conversation(RECOVERY.open(0), *replies)
    assert requests == [
        Enter(0, 1, 1),
        ReadNotes(),
        ReadTableName(),
        OpenSender(former),
        ReadCheckpoint(former, THERE),
        CloseSender(former),
        OpenSender(own),
        PurgeBatches(FENCE, [BATCH]),
        WriteCheckpoint(own, NOTHING),
        WriteNote(FENCE, TransactionalLane(1, own, HERE)),
        ReadParked(),
    ]
    assert opened == Opened(FENCE, own, NOBODY_PARKED, recovered=3, purged=[BATCH])


def test_locked_rows_stay_in_the_checkpoint_of_a_lane_that_begins():
    locked = [Batch(((11, 11),), "now")]
    note = noted(0)
    replies = [
        FENCE,
        note,
        "public.box",
        HERE,
        PUBLISHED,
        Advanced(2, [], locked=locked),
        None,
        NOBODY_PARKED,
    ]
    requests, opened = conversation(RECOVERY.open(0), *replies)
    assert requests[-2] == WriteCheckpoint(name(0), encode(locked))
    assert (opened.recovered, opened.locked) == (2, locked)


UNDECIDED = Found([20], [22], committed=True, reason="gone")


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
    recovery = replace(RECOVERY, undecided=undecided)
    replies = [FENCE, noted(0), "public.box", HERE, ATTEMPTED, ROWS, found]
    requests, opened = conversation(recovery.open(0), *replies, Advanced(3, []), None, NOBODY_PARKED)
    in_log = [BATCH, Batch.of(purged, "later")] if purged else [BATCH]
    assert requests[-5:-1] == [
        ReadRows(Batch(((20, 23),), "later")),
        FindPublished(name(0), ROWS, "trace"),
        PurgeBatches(FENCE, in_log),
        WriteCheckpoint(name(0), NOTHING),
    ]
    counts = len(found.published), len(found.undecided)
    assert opened.doubt == Doubt(3, *counts, found.reason, len(purged))
    assert opened.doubt.is_torn == (0 < counts[0] < 3 - counts[1])


def test_an_attempt_without_rows_is_not_looked_for():
    replies = [FENCE, noted(0), "public.box", HERE, ATTEMPTED, [], Advanced(3, []), None, NOBODY_PARKED]
    requests, opened = conversation(RECOVERY.open(0), *replies)
    assert requests[-4:-1] == [
        ReadRows(Batch(((20, 23),), "later")),
        PurgeBatches(FENCE, [BATCH]),
        WriteCheckpoint(name(0), NOTHING),
    ]
    assert opened.doubt is None


def test_a_former_lane_is_looked_for_while_its_sender_is_open():
    request = next(RECOVERY.recover(noted(0, of=2)))
    assert isinstance(request, RunAll)
    replies = [FENCE, noted(0, of=2), HERE, ATTEMPTED, ROWS, Found([22]), None, Advanced(2, []), None]
    requests, recovered = conversation(request.steps[0], *replies)
    assert [type(each) for each in requests[2:7]] == [
        OpenSender,
        ReadCheckpoint,
        ReadRows,
        FindPublished,
        CloseSender,
    ]
    assert requests[7] == PurgeBatches(FENCE, [BATCH, Batch(((22, 22),), "later")])
    assert recovered == Recovered(2, Doubt(3, 1, 0, "", 1))


def test_a_lane_waits_for_more_locked_rows_than_a_checkpoint_can_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("outbox_core.delivery.recovery.MAX_CHECKPOINT", 4000)
    chance = random.Random(0)
    ids = sorted(chance.sample(range(200_000), 10_000))
    steps = RECOVERY.open(0)
    for reply in (None, FENCE, noted(0), "public.box", HERE, Attempt(encode([Batch.of(ids)]))):
        steps.send(reply)
    with pytest.raises(DriverError, match="locked") as caught:
        steps.send(Advanced(0, [], locked=[Batch.of(ids)]))
    assert caught.value.retryable


def test_a_former_lane_with_locked_rows_is_not_settled():
    request = next(RECOVERY.recover(noted(0, of=2)))
    assert isinstance(request, RunAll)
    steps = request.steps[0]
    replies = [FENCE, noted(0, of=2), HERE, PUBLISHED, None]
    requests = [next(steps), *(steps.send(reply) for reply in replies)]
    assert requests[-1] == PurgeBatches(FENCE, [BATCH])
    with pytest.raises(DriverError, match="locked") as caught:
        steps.send(Advanced(2, [], locked=[BATCH]))
    assert caught.value.retryable


@pytest.mark.parametrize("text", ["4 x", "3 x", "", "2 x"])
def test_a_checkpoint_that_nobody_can_read_is_not_taken_for_an_empty_one(text):
    steps = RECOVERY.open(0)
    for reply in [None, FENCE, noted(0), "public.box", HERE]:
        steps.send(reply)
    with pytest.raises(DriverError, match="cannot read the checkpoint") as caught:
        steps.send(Attempt(text))
    assert not caught.value.retryable


def test_former_lanes_are_settled_at_the_same_time():
    request = next(steps := RECOVERY.recover(noted(0, 3, of=4)))
    assert isinstance(request, RunAll)
    assert [next(each) for each in request.steps] == [Enter(0, 1, 1), Enter(3, 1, 1)]
    with pytest.raises(StopIteration) as ended:
        steps.send([Recovered(5), Recovered()])
    assert ended.value.value == {0: Recovered(5), 3: Recovered()}


def test_a_leader_settles_former_lanes_once_the_fence_is_raised():
    steps = take_over(2, "one", lambda token: Recovery(2, token, BATCHES))
    requests, taken = conversation(steps, 7, noted(0, 3, of=4), [Recovered(5), Recovered()])
    assert requests[:2] == [RaiseFence(2, "one"), ReadNotes()]
    assert next(requests[2].steps[0]) == Enter(0, 2, 7)
    assert taken == TakenOver(7, {0: Recovered(5), 3: Recovered()})


def test_an_error_ends_a_recovery_at_the_request_that_met_it():
    steps = RECOVERY.open(0)
    next(steps)
    with pytest.raises(LeadershipLost):
        steps.throw(LeadershipLost("another process leads"))
    with pytest.raises(StopIteration):
        next(steps)


class World:
    """Database and broker, and what was asked of them.

    Args:
        checkpoints: Name of a sender and place → the checkpoint there.
        notes: What the fence notes.
        token: The leader's.
    """

    name = "public.box"
    fails = ""

    def __init__(self, *, checkpoints=None, notes=None, token=1):
        self.asked = []
        self.checkpoints = checkpoints or {}
        self.notes = notes or {}
        self.token = token
        self.rows = 3
        self.open = self.connections = 0
        self.opened = lambda: None  # what happens when a sender has been opened

    def plan(self, lanes=1, delivery=Delivery.EXACTLY_ONCE):
        made: Any = SimpleNamespace(create=lambda: self)
        return Plan("box", 1, lanes, made, made, made, Limits(), Failures(), delivery)

    def settings(self, lanes, delivery=Delivery.EXACTLY_ONCE):
        made, limits = SimpleNamespace(create=lambda: self), Limits(send_concurrency=lanes)
        chosen = {"dialect": made, "publisher": made, "affinity": made}
        return SimpleNamespace(
            name="one", outbox="box", **chosen, limits=limits, delivery=delivery, failures=Failures()
        )

    def origin(self):
        return None

    def takeovers(self):
        self.asked.append("takeovers")
        return [Takeover(2, "moving", NOW)]

    def connect(self):
        self.connections += 1
        return self

    def lane_statuses(self):
        return [SimpleNamespace(age=None), SimpleNamespace(age=4.0), SimpleNamespace(age=2.5)]

    def bump(self, lanes, holder, expected=None):
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
        if fence.token != self.token:
            raise LeadershipLost("another process leads")
        deleted = self.rows if BATCH in finished else 0
        self.rows -= deleted
        return Advanced(deleted, [])

    def transactional_lanes(self):
        return dict(self.notes)

    def set_transactional(self, fence, note):
        self.asked.append(f"{'note' if note else 'end'} {fence.lane}")
        self.notes.pop(fence.lane, None)
        if note:
            self.notes[fence.lane] = note

    def parked(self):
        return Parked(0, None)

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
        return text and Attempt(text)

    def publish(self, records, checkpoint):
        assert (records, checkpoint) == ([], NOTHING)
        self.world.asked.append(f"publish {self.name}")
        if self.world.fails:
            raise DriverError(self.world.fails, retryable=True)
        return []

    def close(self):
        self.world.open -= 1


def test_a_lane_of_at_least_once_delivery_opens_no_sender():
    world = World()
    assert enter_lane(world.plan(), 0) == Entered(FENCE, NOBODY_PARKED)
    assert world.asked == ["enter 0"]
    assert (world.open, world.connections) == (0, 0)


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
    opened, _ = open_lane(world.plan(), 0)
    own = name(0)
    asked = ["enter 0", f"open {own}", f"checkpoint at {HERE}", "purge 0", f"publish {own}", "note 0"]
    assert world.asked == asked
    assert world.notes == noted(0)
    assert opened.recovered == 0
    assert (world.open, world.connections) == (1, 0)


def test_what_is_in_the_log_is_purged_before_the_checkpoint_forgets_it():
    own = name(0)
    world = World(checkpoints={(own, HERE): TEXT}, notes=noted(0))
    opened, _ = open_lane(world.plan(), 0)
    assert world.asked == ["enter 0", f"open {own}", f"checkpoint at {HERE}", "purge 0", f"publish {own}"]
    assert opened.recovered == 3


def test_a_checkpoint_elsewhere_is_read_there_and_one_of_old_here_is_not_trusted():
    own = name(0)
    world = World(checkpoints={(own, THERE): TEXT, (own, HERE): NOTHING}, notes=noted(0, location=THERE))
    assert open_lane(world.plan(), 0)[0].recovered == 3
    assert world.asked[1:3] == [f"open {own}", f"checkpoint at {THERE}"]
    assert world.asked[-2:] == [f"publish {own}", "note 0"]
    assert world.notes == noted(0)


def test_a_sender_of_another_name_is_fenced_before_anything_is_read_and_its_checkpoint_settled():
    own, former = name(0), name(0, "other")
    checkpoints = {(former, THERE): TEXT, (own, HERE): NOTHING, (former, HERE): NOTHING}
    world = World(checkpoints=checkpoints, notes=noted(0, sender="other", location=THERE))
    assert open_lane(world.plan(), 0)[0].recovered == 3
    assert world.asked == [
        "enter 0",
        f"open {former}",
        f"checkpoint at {THERE}",
        f"open {own}",
        "purge 0",
        f"publish {own}",
        "note 0",
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
    assert world.asked[-1] == "purge 0"
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
        first = [f"enter {lane}", f"open {notes[lane].sender}", f"purge {lane}", f"end {lane}"]
        assert sorted(first, key=world.asked.index) == first
    assert sum(asked.startswith("end") for asked in world.asked) == len(settled)
    assert world.notes == {lane: note for lane, note in notes.items() if lane not in settled}
    assert (world.open, world.connections) == (0, 0)


class Clusters(World):
    """A world with several clusters, in which the order of the first steps is of interest."""

    def bump(self, lanes, holder, expected=None):
        self.asked.append("bump")
        return super().bump(lanes, holder, expected)

    def origin(self):
        return Origin(column="cluster_id", own=1, known=(1, 2))


def test_a_leader_reads_the_deliberate_takeovers_once_it_has_raised_the_fence():
    world = Clusters()
    assert begin_leadership(world.settings(1)) == Begun(1, 2.5, (2,))
    assert world.asked == ["bump", "takeovers"]


def test_a_former_lane_whose_checkpoint_is_gone_ends_the_settlement():
    world = World(notes=noted(0, 1, of=2))
    with pytest.raises(DriverError, match="no checkpoint"):
        begin_leadership(world.settings(1))
    assert world.notes == noted(0, 1, of=2)
    assert (world.open, world.connections) == (0, 0)
