"""What lanes ask between two waits, and what they make of the answers; the threads that carry it out."""

from __future__ import annotations

from threading import Event, Timer
from uuid import uuid4

import pytest
from outbox_api import (
    AccessDenied,
    Advanced,
    Changed,
    ColumnIs,
    Deliveries,
    DriverError,
    Failure,
    Fence,
    MarkedRecord,
    Origin,
    Parked,
)
from outbox_core.config.settings import MIN_HEARTBEAT_SECONDS, Failures, Limits
from outbox_core.delivery.at_least_once import PURGE_SECONDS, MarkPurgeReset
from outbox_core.delivery.commands import (
    Advance,
    Answer,
    EndTransactions,
    Heartbeat,
    Mark,
    Publish,
    Purge,
    Refresh,
    Send,
)
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.recovery import Entered, Opened
from outbox_core.events import LeaderRefreshed, TakeoverBegan
from outbox_core.lanes.lane import AtLeastOnceLane, ExactlyOnceLane
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.lanes.turn import QUIET_SECONDS, TakeoverLog, clusters_of
from outbox_core.lanes.workers import CLOSE_SECONDS, Replies, SenderThread, Worker
from outbox_core.leadership.protocol import LaneControl

FOREVER = float("inf")
LATER = MIN_HEARTBEAT_SECONDS
FENCE = Fence(3, 4, 1, 1)
LED = LaneControl(FOREVER)
AWAY = DriverError("no route to host", retryable=True)
RECORD = MarkedRecord(1, "topic", "k", "value")
LATER_RECORD = MarkedRecord(2, "topic", "k", "value")


def machinery(kind, *sources):
    return kind(Limits(), Failures(most_parked_keys=5), *sources, lambda: 0.5)


@pytest.fixture
def telemetry():
    return Telemetry(3, 1.0, 0.0)


@pytest.fixture
def records(telemetry):
    return AtLeastOnceLane(machinery(MarkPurgeReset, uuid4), 3, telemetry, Entered(FENCE, Parked(2, 9.0)))


@pytest.fixture
def batches(telemetry):
    opened = Opened(FENCE, "sender", Parked(2, 9.0), 0)
    return ExactlyOnceLane(machinery(SelectPublishPurge), 3, telemetry, opened, expires=100.0)


def only(requests, kind):
    (found,) = [request for request in requests if isinstance(request, kind)]
    return found


def kinds(requests):
    return [type(request) for request in requests]


def test_a_record_passes_through_a_lane_and_is_counted(records, telemetry):
    mark = only(records.step(0.0, LED), Mark)
    records.receive(0.0, Answer(mark, records=[RECORD]))
    assert only(records.step(0.0, LED), Send).records == [RECORD]
    records.receive(0.0, Deliveries(delivered=[RECORD]))
    purge = only(records.step(PURGE_SECONDS, LED), Purge)
    records.receive(PURGE_SECONDS, Answer(purge, changed=Changed(1)))
    metrics = telemetry.metrics
    assert (metrics.marked, metrics.sent, metrics.purged, metrics.parked) == (1, 1, 1, 2)


CLUSTERS = [ColumnIs("cluster_id", 2), ColumnIs("cluster_id", 3, 600.0), ColumnIs("cluster_id", 1, 1200.0)]
OWN = Origin(column="cluster_id", own=2, known=(1, 2, 3))


def test_which_cluster_the_rows_of_a_source_are_of():
    assert clusters_of(CLUSTERS, OWN) == (None, 3, 1)
    assert clusters_of(CLUSTERS, None) == (None, None, None)
    assert clusters_of([ColumnIs("region", 7)], OWN) == (None,)
    assert clusters_of([], OWN) == ()


def test_records_of_other_clusters_are_counted_and_the_first_are_told_of(records, telemetry, caplog):
    telemetry.takeovers.configure(clusters_of(CLUSTERS, OWN), {1})
    for source, count in enumerate((1, 1, 2)):
        telemetry.marked(5.0, source, count)
    telemetry.marked(6.0, 1, 4)
    telemetry.marked(7.0, 2, 0)
    assert telemetry.take_events() == [
        TakeoverBegan(3, lane=3, deliberate=False),
        TakeoverBegan(1, lane=3, deliberate=True),
    ]
    assert [line.levelname for line in caplog.records] == ["WARNING", "WARNING"]
    assert (telemetry.metrics.marked, telemetry.metrics.taken_over) == (8, 7)
    heartbeat = only(records.step(10.0, LED), Heartbeat)
    assert heartbeat.metrics["taken_over"] == 7
    assert heartbeat.metrics["taken_over_from"] == {
        "1": {"records": 2, "seconds_ago": 5.0},
        "3": {"records": 5, "seconds_ago": 4.0},
    }


def test_a_takeover_begins_anew_after_a_while_without_records():
    log = TakeoverLog(0)
    log.configure([None, 3], ())
    assert log.add(0.0, 3, 1) is not None
    assert log.add(QUIET_SECONDS, 3, 1) is None
    assert log.add(2 * QUIET_SECONDS + 1.0, 3, 1) is not None


def test_nothing_is_said_of_takeovers_where_there_are_none(records):
    assert "taken_over_from" not in only(records.step(LATER, LED), Heartbeat).metrics


@pytest.mark.parametrize("delivery", ["records", "batches"])
def test_a_lane_counts_what_it_takes_over(delivery, request, telemetry):
    lane = request.getfixturevalue(delivery)
    telemetry.takeovers.configure([None, 3], ())
    lane.step(0.0, LED)
    found = Mark(uuid4(), 10, 100, (), 1) if delivery == "records" else Advance([], [], 10, 100, 1)
    lane.receive(0.0, Answer(found, records=[RECORD], advanced=Advanced(0, [RECORD])))
    assert telemetry.metrics.taken_over == 1


def test_a_lane_that_takes_a_new_leader_id_asks_for_nothing_else_until_it_has_entered(records, telemetry):
    mark = only(records.step(0.0, LED), Mark)
    records.receive(0.0, Answer(mark, error=AWAY))
    refresh = only(records.step(0.0, LED), Refresh)
    assert refresh.leader_id != mark.leader_id
    assert records.step(5.0, LED) == []
    assert records.wake_at() == FOREVER
    records.receive(5.0, Answer(refresh, parked=Parked(4, 1.0)))
    assert only(records.step(10.0, LED), Mark).leader_id == refresh.leader_id
    assert telemetry.take_events() == [LeaderRefreshed(refresh.leader_id, 3)]
    assert telemetry.metrics.parked == 4


@pytest.mark.parametrize(
    "error", [AccessDenied("the password has expired"), DriverError("x", retryable=False)]
)
def test_what_no_repetition_cures_ends_a_lane(records, error):
    mark = only(records.step(0.0, LED), Mark)
    with pytest.raises(type(error)):
        records.receive(0.0, Answer(mark, error=error))


def test_a_broker_or_a_fence_that_fails_ends_a_lane(records):
    with pytest.raises(DriverError):
        records.receive(0.0, Answer(Send([RECORD]), error=AWAY))
    with pytest.raises(DriverError):
        records.receive(0.0, Answer(Refresh(uuid4()), error=AWAY))


def test_nothing_is_asked_without_a_lease_and_a_drained_lane_is_over(records):
    mark = only(records.step(0.0, LED), Mark)
    assert records.step(0.0, LaneControl(FOREVER, draining=True)) == []
    assert not records.over
    records.receive(0.0, Answer(mark, records=[RECORD]))
    assert records.step(0.0, LaneControl(FOREVER, draining=True)) == []
    assert records.over


@pytest.mark.parametrize("lane", ["records", "batches"])
def test_one_heartbeat_is_out_at_a_time_and_counts_what_is_parked(lane, request, telemetry):
    lane = request.getfixturevalue(lane)
    lane.step(0.0, LED)
    heartbeat = only(lane.step(LATER, LED), Heartbeat)
    assert heartbeat.metrics["parked"] == 2
    assert Heartbeat not in kinds(lane.step(3 * LATER, LED))
    lane.receive(3 * LATER, Answer(heartbeat, error=AWAY))
    heartbeat = only(lane.step(3 * LATER, LED), Heartbeat)
    lane.receive(3 * LATER, Answer(heartbeat, parked=Parked(4, 1.0)))
    lane.step(4 * LATER, LED)
    assert telemetry.metrics.parked == 4
    with pytest.raises(TypeError):
        lane.receive(0.0, Answer(heartbeat, error=TypeError("a defect of ours")))


def test_a_batch_passes_through_a_lane_which_says_at_the_fence_when_it_has_ended(batches, telemetry):
    advance = only(batches.step(0.0, LED), Advance)
    batches.receive(0.0, Answer(advance, advanced=Advanced(0, [RECORD])))
    publish = only(batches.step(0.0, LED), Publish)
    draining = LaneControl(FOREVER, draining=True)
    assert batches.step(0.0, draining) == []
    batches.receive(0.0, Answer(publish))
    advance = only(batches.step(0.0, draining), Advance)
    batches.receive(0.0, Answer(advance, advanced=Advanced(1, [])))
    assert batches.step(0.0, draining) == [EndTransactions()]
    assert batches.step(0.0, draining) == []
    assert not batches.over
    batches.receive(0.0, Answer(EndTransactions()))
    assert batches.over
    metrics = telemetry.metrics
    assert (metrics.marked, metrics.sent, metrics.purged) == (1, 1, 1)
    assert [event.stage for event in telemetry.take_events()] == [
        "selected",
        "publishing",
        "published",
        "purged",
    ]


def test_a_lane_that_ends_with_torn_rows_keeps_its_note(telemetry):
    opened = Opened(FENCE, "sender", Parked(2, 9.0), 0)
    lane = ExactlyOnceLane(machinery(SelectPublishPurge), 3, telemetry, opened, FOREVER, torn=[RECORD.id])
    advance = only(lane.step(0.0, LED), Advance)
    lane.receive(0.0, Answer(advance, advanced=Advanced(0, [])))
    assert lane.step(0.0, LaneControl(FOREVER, draining=True)) == []
    assert lane.over


def test_an_aborted_batch_is_counted_and_its_key_held(batches, telemetry):
    batches.receive(0.0, Answer(only(batches.step(0.0, LED), Advance), advanced=Advanced(0, [RECORD])))
    publish = only(batches.step(0.0, LED), Publish)
    batches.receive(0.0, Answer(publish, failures=[Failure(RECORD, "too large", retryable=False)]))
    batches.step(0.0, LED)
    assert (telemetry.metrics.aborted, telemetry.metrics.failed) == (1, 1)


def test_every_doubt_ends_a_lane_of_batches_and_so_does_its_age(batches):
    advance = only(batches.step(0.0, LED), Advance)
    with pytest.raises(DriverError):
        batches.receive(0.0, Answer(advance, error=AWAY))
    batches.receive(0.0, Answer(advance))
    assert batches.step(101.0, LED) == []
    assert batches.over


class Broker:
    """Delivers what is sent when it is polled next, unless it is broken."""

    def __init__(self, broken=False):
        self.sent = []
        self.taken = []
        self.broken = broken
        self.closed = False

    def send(self, records):
        if self.broken:
            raise AWAY
        self.sent += records
        self.taken += records

    def poll(self, timeout):
        sent, self.sent = self.sent, []
        return Deliveries(delivered=sent)

    def close(self, timeout):
        self.closed = True


def test_a_thread_sends_and_tells_what_became_of_it():
    replies, broker = Replies(), Broker()
    thread = SenderThread("sender", broker, replies, lambda: True)
    thread.submit(Send([RECORD]))
    assert replies.get(timeout=30) == Deliveries(delivered=[RECORD])
    thread.close()
    assert broker.closed


def test_a_sender_that_breaks_is_closed_and_tells():
    replies, broker = Replies(), Broker(broken=True)
    thread = SenderThread("sender", broker, replies, lambda: True)
    thread.submit(Send([RECORD]))
    assert replies.get(timeout=30) == Answer(Send([RECORD]), error=AWAY)
    thread.close()
    assert broker.closed


def test_nothing_is_sent_without_a_lease():
    replies, broker = Replies(), Broker()
    thread = SenderThread("sender", broker, replies, lambda: False)
    thread.submit(Send([RECORD]))
    reply = replies.get(timeout=30)
    assert isinstance(reply, Deliveries)
    (failure,) = reply.failed
    assert (failure.record, failure.retryable) == (RECORD, True)
    thread.close()
    assert broker.taken == []


def test_what_waits_to_be_sent_when_a_lane_ends_is_dropped_and_the_sender_is_closed_before_the_next_opens():
    replies, broker = Replies(), Broker()
    sending, go_on = Event(), Event()

    def leading():
        sending.set()
        return go_on.wait(30)

    thread = SenderThread("sender", broker, replies, leading)
    thread.submit(Send([RECORD]))
    thread.submit(Send([LATER_RECORD]))
    assert sending.wait(30)
    Timer(CLOSE_SECONDS + 0.2, go_on.set).start()
    thread.close()
    assert broker.closed
    assert broker.taken == [RECORD]


def test_what_is_raised_in_a_thread_is_the_answer():
    replies = Replies()
    ended: list[bool] = []

    def execute(request):
        raise AWAY

    worker = Worker("worker", execute, lambda: ended.append(True), replies)
    worker.submit(EndTransactions())
    assert replies.get(timeout=30) == Answer(EndTransactions(), error=AWAY)
    worker.close()
    assert ended == [True]
