"""What the loops of a lane get to do, what the lane makes of what comes of it, and the loops themselves."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from threading import Event, Thread
from time import monotonic
from typing import Any
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
    LeadershipLost,
    MarkedRecord,
    Origin,
    Parked,
    Pause,
    PermittedTopics,
    Repartitioned,
)
from outbox_core.control.protocol import LaneControl
from outbox_core.delivery.at_least_once import PURGE_SECONDS, MarkPurgeReset
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.recovery import Entered, Opened
from outbox_core.events import LeaderRefreshed, TakeoverBegan
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.database import Database
from outbox_core.lanes.lane import REST_SECONDS, Threads
from outbox_core.lanes.loops import run_batches, run_records
from outbox_core.lanes.pauses import LOOK_SECONDS
from outbox_core.lanes.record_lane import AtLeastOnceLane
from outbox_core.lanes.takeovers import QUIET_SECONDS, TakeoverLog, clusters_of
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.settings import MIN_HEARTBEAT_SECONDS, Failures, Limits
from outbox_core.status.pauses import in_effect

FOREVER = float("inf")
LATER = MIN_HEARTBEAT_SECONDS
FENCE = Fence(3, 4, 1, 1)
AWAY = DriverError("no route to host", retryable=True)
RECORD = MarkedRecord(1, "topic", "k", "value")
NONE_PARKED = Parked(0, None)


class Still(Threads):
    """Threads of this process, with a clock that stands still; and a wait is an error."""

    def __init__(self):
        self.now = 0.0

    def clock(self):
        return self.now

    def lock(self, conditions):
        return nullcontext(), [self] * conditions

    def wait(self, timeout):
        raise Waits

    def notify(self):
        """Nobody waits."""


class Waits(Exception):  # noqa: N818 - it is no error
    """Nothing is due."""


class Table:
    """An outbox that answers with what it was given, in order; an error is raised."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.asked = []
        self.written = []
        self.closed = 0

    def _answer(self, *asked):
        self.asked.append(asked)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def mark(self, fence, leader_id, *_):
        return self._answer("mark", leader_id) or []

    def purge(self, fence, leader_id, ids):
        return self._answer("purge", ids) or Changed(len(ids))

    def reset(self, fence, leader_id, ids):
        return self._answer("reset", ids) or Changed(len(ids))

    def advance(self, fence, finished, pending, limit, *_):
        return self._answer("advance", limit) or Advanced(0, [])

    def enter(self, lane, lanes, token):
        return self._answer("enter", lanes) or Fence(3, 4, 1, 2)

    def parked(self):
        return Parked(4, 1.0)

    def pauses(self):
        return []

    def heartbeat(self, fence, metrics):
        self.written.append(metrics)
        if AWAY in self.answers:
            self._answer("heartbeat")

    def set_transactional(self, fence, noted):
        self._answer("end")

    def close(self):
        self.closed += 1


def machinery(kind, *sources):
    return kind(Limits(), Failures(most_parked_keys=5), *sources, lambda: 0.5)


@pytest.fixture
def telemetry():
    return Telemetry(3, 1.0, 0.0)


@pytest.fixture
def threads():
    return Still()


@pytest.fixture
def control():
    return LaneControl(FOREVER)


@pytest.fixture
def records(telemetry, control, threads):
    machine = machinery(MarkPurgeReset, uuid4)
    entered = Entered(FENCE, Parked(2, 9.0))
    return AtLeastOnceLane(machine, 3, telemetry, entered, control=control, threads=threads, lanes=4)


def batch_lane(telemetry, control, threads, expires=100.0, torn=()):
    opened, machine = Opened(FENCE, "sender", Parked(2, 9.0), 0), machinery(SelectPublishPurge)
    return ExactlyOnceLane(
        machine, 3, telemetry, opened, expires, control=control, threads=threads, torn=torn
    )


@pytest.fixture
def batches(telemetry, control, threads):
    return batch_lane(telemetry, control, threads)


def database(*answers):
    table: Any = Table(*answers)
    return Database(lambda: table, PermittedTopics()), table


def do(lane, take, *answers, seconds=0.0):
    """Does what is due, a look at pauses before that; returns what was asked, and what settles it."""
    work = take(None)
    if work is not None and work.name == "pauses":
        work = take(partial(work.run(database()[0]), 0.0))
    if work is None:
        return None, None
    connection, table = database(*answers)
    try:
        done = work.run(connection)
    except DriverError as error:
        return table, partial(lane.failed, work, error, seconds)
    return table, partial(done, seconds)


def idle(take, settle=None):
    with pytest.raises(Waits):
        take(settle)


def test_a_record_passes_through_a_lane_and_is_counted(records, telemetry, threads):
    _, marked = do(records, records.next_for_marker, [RECORD])
    idle(records.next_for_marker, marked)
    assert records.next_to_send(None).records.alone == [RECORD]
    threads.now = PURGE_SECONDS
    records.next_to_send(None)
    idle(records.next_for_purger)
    records._reported(Deliveries(delivered=[RECORD]), threads.now)
    threads.now *= 2
    table, purged = do(records, records.next_for_purger)
    assert table.asked == [("purge", [1])]
    idle(records.next_for_purger, purged)
    metrics = telemetry.metrics
    assert (metrics.marked, metrics.sent, metrics.purged, metrics.parked) == (1, 1, 1, 2)


CLUSTERS = [ColumnIs("cluster_id", 2), ColumnIs("cluster_id", 3, 600.0), ColumnIs("cluster_id", 1, 1200.0)]
OWN = Origin(column="cluster_id", own=2, known=(1, 2, 3))


def test_which_cluster_the_rows_of_a_source_are_of():
    assert clusters_of(CLUSTERS, OWN) == (None, 3, 1)
    assert clusters_of(CLUSTERS, None) == (None, None, None)
    assert clusters_of([ColumnIs("region", 7)], OWN) == (None,)
    assert clusters_of([], OWN) == ()


def test_records_of_other_clusters_are_counted_and_the_first_are_told_of(records, telemetry, threads, logged):
    telemetry.takeovers.configure(clusters_of(CLUSTERS, OWN), {1})
    for source, count in enumerate((1, 1, 2)):
        telemetry.marked(5.0, source, count)
    telemetry.marked(6.0, 1, 4)
    telemetry.marked(7.0, 2, 0)
    assert telemetry.take_events() == [
        TakeoverBegan(3, lane=3, deliberate=False),
        TakeoverBegan(1, lane=3, deliberate=True),
    ]
    assert not logged("outbox.lanes"), "the lane's lock may be held"
    telemetry.write_lines()
    assert [line.levelname for line in logged("outbox.lanes")] == ["WARNING", "WARNING"]
    assert (telemetry.metrics.marked, telemetry.metrics.taken_over) == (8, 7)
    threads.now = 10.0
    table, _ = do(records, records.next_for_marker)
    [written] = table.written
    assert written["taken_over"] == 7
    assert written["taken_over_from"] == {
        "1": {"records": 2, "seconds_ago": 5.0},
        "3": {"records": 5, "seconds_ago": 4.0},
    }


def test_a_takeover_begins_anew_after_a_while_without_records():
    log = TakeoverLog(0)
    log.configure([None, 3], ())
    assert log.add(0.0, 3, 1) is not None
    assert log.add(QUIET_SECONDS, 3, 1) is None
    assert log.add(2 * QUIET_SECONDS + 1.0, 3, 1) is not None


def test_nothing_is_said_of_takeovers_where_there_are_none(records, threads):
    threads.now = LATER
    table, _ = do(records, records.next_for_marker)
    assert "taken_over_from" not in table.written[0]


def test_a_lane_that_takes_a_new_leader_id_does_nothing_else_until_it_has_entered(
    records, telemetry, threads, caplog
):
    first = records.machine.leader_id
    _, unknown = do(records, records.next_for_marker, AWAY)
    work = records.next_for_marker(unknown)
    assert "mark failed, trying again: no route to host" in caplog.text
    leader_id = records.machine.leader_id
    assert leader_id != first
    idle(records.next_for_purger)
    threads.now = 5.0
    connection, table = database()
    done = work.run(connection)
    assert table.asked == [("enter", 4)]
    work = records.next_for_marker(partial(done, 0.0))
    assert records.fence.epoch == 2
    done = work.run(connection)
    records.next_for_marker(partial(done, 0.0)).run(connection)
    assert table.written
    assert table.asked[1:] == [("mark", leader_id)]
    assert telemetry.take_events() == [LeaderRefreshed(leader_id, 3)]
    assert telemetry.metrics.parked == 4


@pytest.mark.parametrize(
    "error", [AccessDenied("the password has expired"), DriverError("x", retryable=False)]
)
def test_what_no_repetition_cures_ends_a_lane(records, error):
    _, failed = do(records, records.next_for_marker, error)
    with pytest.raises(type(error)):
        records.next_for_marker(failed)


def test_nothing_is_marked_without_a_lease_and_a_drained_lane_is_over(records, control):
    control.lease_until = 0.0
    idle(records.next_for_marker)
    control.lease_until = FOREVER
    _, entered = do(records, records.next_for_marker)
    work = records.next_for_marker(entered)
    control.draining = True
    idle(records.next_for_purger)
    assert not records.over
    done = work.run(database()[0])
    assert records.next_for_marker(partial(done, 0.0)) is None
    assert records.over
    assert records.drained
    assert records.next_to_send(None) is None


@pytest.mark.parametrize("lane", ["records", "batches"])
def test_one_heartbeat_is_out_at_a_time_and_counts_what_is_parked(lane, request, telemetry, threads):
    lane = request.getfixturevalue(lane)
    take = lane.next_for_marker if isinstance(lane, AtLeastOnceLane) else lane.next_for_database
    do(lane, take)
    lane.pauses.due = FOREVER
    threads.now = LATER
    table, failed = do(lane, take, AWAY, seconds=0.5)
    assert table.written[0]["parked"] == 2
    threads.now = 3 * LATER
    idle(take)
    table, beaten = do(lane, lambda _: take(failed))
    assert telemetry.unacknowledged.seconds(3 * LATER) == 0.5, "the database is silent"
    assert table.written
    idle(take, beaten)
    threads.now = 3.5 * LATER
    idle(take)
    assert telemetry.metrics.parked == 4
    with pytest.raises(TypeError):
        telemetry.not_beaten(TypeError("a defect of ours"))


def test_a_connection_without_work_is_given_back(records, threads, control):
    control.lease_until = 0.0
    records.machine.delivered(0.0, [])
    threads.now = 0.1
    [*_, purging] = records._loops
    purging._rest_at = REST_SECONDS
    idle(records.next_for_purger)
    threads.now = REST_SECONDS
    connection, table = database()
    connection.table()
    work = records.next_for_purger(None)
    done = work.run(connection)
    assert table.closed == 1
    idle(records.next_for_purger, partial(done, 0.0))


def publish(lane, threads, failures=()):
    found = lane.next_to_publish(None)
    return found, lambda now: lane.published(found, failures, 0.0, now)


def test_a_batch_passes_through_a_lane_which_says_at_the_fence_when_it_has_ended(
    batches, telemetry, threads, control
):
    _, advanced = do(batches, batches.next_for_database, Advanced(0, [RECORD]))
    idle(batches.next_for_database, advanced)
    _, published = publish(batches, threads)
    control.draining = True
    idle(batches.next_for_database)
    idle(batches.next_to_publish, published)
    table, advanced = do(batches, batches.next_for_database, Advanced(1, []))
    assert table.asked == [("advance", 0)]
    table, ended = do(batches, lambda _: batches.next_for_database(advanced))
    assert table.asked == [("end",)]
    idle(batches.next_to_publish)
    assert not batches.over
    assert batches.next_for_database(ended) is None
    assert batches.drained
    metrics = telemetry.metrics
    assert (metrics.marked, metrics.sent, metrics.purged, metrics.transactions) == (1, 1, 1, 1)
    assert [event.stage for event in telemetry.take_events()] == [
        "selected",
        "publishing",
        "published",
        "purged",
    ]


def test_a_lane_that_ends_with_torn_rows_keeps_its_note(telemetry, control, threads):
    lane = batch_lane(telemetry, control, threads, FOREVER, torn=[RECORD.id])
    _, advanced = do(lane, lane.next_for_database, Advanced(0, []))
    idle(lane.next_for_database, advanced)
    control.draining = True
    assert lane.next_for_database(None) is None
    assert lane.drained


def test_an_aborted_batch_is_counted_and_its_key_held(batches, telemetry, threads):
    _, advanced = do(batches, batches.next_for_database, Advanced(0, [RECORD]))
    idle(batches.next_for_database, advanced)
    _, aborted = publish(batches, threads, [Failure(RECORD, "too large", retryable=False)])
    idle(batches.next_to_publish, aborted)
    assert (telemetry.metrics.aborted, telemetry.metrics.failed) == (1, 1)
    assert telemetry.metrics.transactions == 0


def test_every_doubt_ends_a_lane_of_batches_and_so_does_its_age(batches, threads):
    _, failed = do(batches, batches.next_for_database, AWAY)
    with pytest.raises(DriverError):
        batches.next_for_database(failed)
    with pytest.raises(DriverError):
        batches.next_to_publish(lambda now: batches.unpublished(AWAY, 1.0, now))
    batches.machine._database = None
    threads.now = 101.0
    assert batches.next_for_database(None) is None
    assert batches.over
    assert not batches.drained


class Broker:
    """Delivers what is sent when it is polled next, unless it is broken."""

    def __init__(self, broken=False):
        self.sent = []
        self.taken = []
        self.broken = broken
        self.closed = False
        self.polled = Event()

    def send(self, records):
        if self.broken:
            raise AWAY
        self.sent += records
        self.taken += records

    def poll(self, timeout):
        self.polled.set()
        sent, self.sent = self.sent, []
        return Deliveries(delivered=sent)

    def close(self, *_):
        self.closed = True


class Running:
    """A lane of at-least-once delivery on threads of this process."""

    def __init__(self, control, broker, marking, purging=None):
        telemetry = Telemetry(3, 1.0, monotonic())
        self.lane = AtLeastOnceLane(
            machinery(MarkPurgeReset, uuid4),
            3,
            telemetry,
            Entered(FENCE, NONE_PARKED),
            control=control,
            threads=Threads(),
            lanes=4,
        )
        self.error = None
        tables: list[Any] = [marking, purging or Table()]
        connections = [Database(partial(lambda table: table, table), PermittedTopics()) for table in tables]
        self._arguments = self.lane, broker, *connections, Threads()
        self._thread = Thread(target=self._run)

    def _run(self):
        try:
            run_records(*self._arguments)
        except Exception as error:  # noqa: BLE001 - the tests look at it
            self.error = error

    def start(self):
        self._thread.start()
        return self

    def join(self):
        self._thread.join(30)
        assert not self._thread.is_alive()


class Purging(Table):
    """Tells when a purge is done."""

    def __init__(self):
        super().__init__()
        self.purged = Event()

    def purge(self, *arguments):
        try:
            return super().purge(*arguments)
        finally:
            self.purged.set()


def test_the_loops_send_purge_and_drain(control):
    broker, purging, marking = Broker(), Purging(), Table([RECORD])
    running = Running(control, broker, marking, purging).start()
    assert purging.purged.wait(30)
    control.draining = True
    running.join()
    assert (running.error, running.lane.drained) == (None, True)
    assert purging.asked == [("purge", [1])]
    assert broker.taken == [RECORD]
    assert [metrics.get("left") for metrics in marking.written][-1], "its silence begins with the drain's end"
    assert marking.written[-1]["in_flight"] == 0
    assert (broker.closed, marking.closed, purging.closed) == (True, 1, 1)


def test_a_lane_that_cannot_say_that_it_has_left_ends_nevertheless(control):
    broker, marking = Broker(), Table()
    running = Running(control, broker, marking).start()
    assert broker.polled.wait(30)
    marking.answers.append(AWAY)
    control.draining = True
    running.join()
    assert (running.error, running.lane.drained) == (None, True)


def test_a_lane_that_is_stopped_does_not_say_that_it_has_left(control):
    broker, marking = Broker(), Table()
    running = Running(control, broker, marking).start()
    assert broker.polled.wait(30)
    control.stopped = True
    running.join()
    assert not any("left" in metrics for metrics in marking.written)


def test_a_sender_that_breaks_is_closed_and_ends_the_lane(control):
    broker = Broker(broken=True)
    running = Running(control, broker, Table([RECORD])).start()
    running.join()
    assert (running.error, broker.closed) == (AWAY, True)


@pytest.mark.parametrize("error", [LeadershipLost("another leads"), TypeError("a defect of ours")])
def test_what_is_raised_in_a_loop_ends_the_lane(control, error):
    running = Running(control, Broker(), Table(error)).start()
    running.join()
    assert running.error is error


def test_nothing_is_sent_once_the_lease_has_ended_or_the_lane(control, monkeypatch):
    broker = Broker()
    running = Running(control, broker, Table([RECORD]))
    monkeypatch.setattr(running.lane, "may_work", lambda: False)  # between the lane and the client
    running.start()
    assert broker.polled.wait(30)
    while not running.lane.machine.scoreboard.held.holds:
        assert running.error is None
    control.stopped = True
    running.join()
    [hold] = running.lane.machine.scoreboard.held.holds.values()
    assert (hold.reason, hold.incurable) == ("the lease ended before it was sent", 0)
    assert broker.taken == []


def test_a_lane_may_work_while_it_has_a_lease_and_is_not_over(records, control, threads):
    assert records.may_work()
    control.lease_until = 1.0
    threads.now = 1.0
    assert not records.may_work()
    control.lease_until = 2.0
    records.end()
    assert not records.may_work()


def test_a_call_of_the_database_that_never_returns_is_due_after_a_while(records, telemetry, threads):
    telemetry.unacknowledged.longest_call = 50.0
    assert records.next_for_marker(None).name == "mark"
    due = telemetry.unacknowledged.seconds
    assert due(threads.now + 50) == 0
    assert due(threads.now + 90) == 40
    records.end()
    assert due(threads.now + 90) == 0, "the next epoch has another connection"


def test_a_connection_that_hangs_is_left_behind(control):
    hangs = Event()

    class Hanging(Table):
        def mark(self, *_):
            hangs.wait(30)
            return []

    broker = Broker()
    running = Running(control, broker, Hanging()).start()
    assert broker.polled.wait(30)
    control.stopped = True
    running.join()
    assert broker.closed
    hangs.set()


def test_a_batch_is_published_and_the_sender_closed(telemetry, control):
    published = []

    class Transactions:
        def publish(self, records, checkpoint):
            published.extend(records)
            raise AWAY

        def close(self):
            published.append("closed")

    lane = batch_lane(telemetry, control, Threads(), FOREVER)
    connection, table = database(Advanced(0, [RECORD]))
    sender: Any = Transactions()
    with pytest.raises(DriverError):
        run_batches(lane, sender, connection, Threads())
    assert published == [RECORD, "closed"]
    assert table.closed


def test_a_lane_of_batches_ends_though_both_its_servers_hang(telemetry, control):
    hangs, busy = Event(), Event()

    class Silent:
        def publish(self, records, checkpoint):
            busy.set()
            hangs.wait(240)
            return []

        def close(self):
            """Comes too late."""

    lane = batch_lane(telemetry, control, Threads(), FOREVER)
    connection, _ = database(Advanced(0, [RECORD]))
    running = Thread(target=run_batches, args=(lane, Silent(), connection, Threads()))
    running.start()
    assert busy.wait(30)
    control.stopped = True
    running.join(60)
    assert not running.is_alive()
    hangs.set()


def test_a_lane_whose_threads_cannot_all_be_started_ends_those_that_run(telemetry, control):
    class Few(Threads):
        def spawn(self, run, name):
            if name.startswith("purger"):
                raise RuntimeError("can't start new thread")
            return super().spawn(run, name)

    broker, marking = Broker(), Table()
    running = Running(control, broker, marking)
    running._arguments = (*running._arguments[:-1], Few())
    running.start().join()
    assert str(running.error) == "can't start new thread"
    assert running.lane.over
    assert broker.closed


def test_a_look_at_pauses_that_fails_ends_no_lane_and_what_it_finds_is_told_at_once(records, threads):
    pause = Pause("orders", "ann", "", datetime(2026, 3, 1, tzinfo=UTC))
    _, marked = do(records, records.next_for_marker)
    threads.now = LOOK_SECONDS
    look = records.next_for_marker(marked)
    assert look.name == "pauses"
    beat = records.next_for_marker(partial(records.failed, look, AWAY, 0.5))
    threads.now += LOOK_SECONDS
    connection, table = database()
    table.pauses = lambda: [pause]
    look = records.next_for_marker(partial(beat.run(connection), 0.0))
    assert (look.name, records.over, "paused" in table.written[0]) == ("pauses", False, False)
    beat = records.next_for_marker(partial(look.run(connection), 0.0))
    beat.run(connection)
    assert in_effect(table.written[1], pause)


class Partitioned:
    """A sender that has found what it was given."""

    def __init__(self, *found):
        self.found = found
        self.refreshed = 0

    def refresh(self):
        self.refreshed += 1

    def take_repartitioned(self):
        found, self.found = self.found, ()
        return found


@pytest.mark.parametrize("lane", ["records", "batches"])
def test_a_sender_looks_at_partitions_anew_when_a_pause_has_ended_and_tells_of_changed_ones(
    lane, request, telemetry, caplog
):
    lane = request.getfixturevalue(lane)
    lane.heed_partitions()
    lane.partitioned = sender = Partitioned(Repartitioned("orders", 4, 16))
    lane.pauses.looked(1.0, [Pause("orders", "ann", "", datetime(2026, 3, 1, tzinfo=UTC))])
    lane.heed_partitions()
    assert sender.refreshed == 0
    lane.pauses.looked(2.0, [])
    for _ in range(2):
        lane.heed_partitions()
    assert sender.refreshed == 1
    assert telemetry.metrics.repartitioned == 1
    telemetry.write_lines()
    assert "'orders' has 16 partitions instead of 4" in caplog.text
