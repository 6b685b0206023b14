"""The loops of a lane, each on a thread: plain code that waits for the lane, the database, or the broker.

They get what they need of the machine from outside, so the simulation runs the same loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from outbox_api import Deliveries, RunSender, Sender, TransactionalSender
from outbox_api.support.context_thread import as_exception

from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.database import Database
from outbox_core.lanes.lane import Ask, Join, Lane, Settled, Threads, Work
from outbox_core.lanes.record_lane import AtLeastOnceLane, refused

CLOSE_SECONDS = 1.0
"""How long the end of a lane waits for a thread that hangs in a call of a server; it is left behind then."""


def run_records(
    lane: AtLeastOnceLane, sender: Sender, marking: Database, purging: Database, threads: Threads
) -> None:
    """Runs a lane of at-least-once delivery to its end. The calling thread sends; it never waits for long.

    Closes the sender and the connections.

    Raises:
        LeadershipLost: The fence carries another leader's token.
        DriverError: The database or the broker cannot be used; a restart may succeed.
    """
    loops = {
        "marker": partial(database_loop, lane, lane.next_for_marker, marking, threads.clock, lane.say_left),
        "purger": partial(database_loop, lane, lane.next_for_purger, purging, threads.clock),
    }
    spawned = _spawn(lane, loops, threads, close=partial(sender.close, 0.0))
    send_loop(lane, sender)
    _finish(lane, spawned)


def run_batches(
    lane: ExactlyOnceLane, sender: TransactionalSender, database: Database, threads: Threads
) -> None:
    """Runs a lane of exactly-once delivery, see :func:`run_records`; the calling thread follows orders."""
    loops = {
        "advancer": partial(
            database_loop, lane, lane.next_for_database, database, threads.clock, lane.say_left
        ),
        "publisher": partial(publish_loop, lane, sender, threads.clock),
    }
    spawned = _spawn(lane, loops, threads, close=sender.close)
    lane.follow_orders(None)
    _finish(lane, spawned)


def _spawn(
    lane: Lane, loops: Mapping[str, Callable[[], None]], threads: Threads, *, close: Callable[[], object]
) -> list[Join]:
    """Starts threads; where no more can be started, those that run already end."""
    try:
        return [threads.spawn(run, f"{name}-{lane.number}") for name, run in loops.items()]
    except BaseException as error:
        lane.end(as_exception(error))
        close()
        raise


def _finish(lane: Lane, spawned: list[Join]) -> None:
    for join in spawned:
        join(CLOSE_SECONDS)
    if lane.error is not None:
        raise lane.error


def database_loop(
    lane: Lane,
    next_work: Ask[Work],
    database: Database,
    clock: Callable[[], float],
    finish: Callable[[Database], None] = lambda _: None,
) -> None:
    """Does a lane's work at the database, and at its end what ``finish`` does."""
    settle: Settled | None = None
    try:
        while (work := next_work(settle)) is not None:
            since = clock()
            try:
                done = work.run(database)
            except Exception as error:  # noqa: BLE001 - the lane decides what it means
                database.close()
                settle = partial(lane.failed, work, error, clock() - since)
            else:
                settle = partial(done, clock() - since)
        finish(database)
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that runs the lane
        lane.end(as_exception(error))
    finally:
        database.close()


def send_loop(lane: AtLeastOnceLane, sender: Sender) -> None:
    """Sends a lane's records, and collects what becomes of them.

    Records sent after the end of the lease could arrive behind those of a successor. So the lease is compared
    once more, between the wait for the lane and the broker's client.
    """
    reports: Deliveries | None = None
    try:
        while (sending := lane.next_to_send(reports)) is not None:
            lane.heed_partitions()
            alone, first, others = sending.records
            if (alone or first or others) and not lane.may_work():
                reports = refused(sending.records)
                continue
            if alone:
                sender.send(alone)
            if first or others:
                cast("RunSender", sender).send_runs(first, others)
            reports = sender.poll(sending.seconds)
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that runs the lane
        lane.end(as_exception(error))
    finally:
        sender.close(0.0)


def publish_loop(lane: ExactlyOnceLane, sender: TransactionalSender, clock: Callable[[], float]) -> None:
    """Publishes a lane's batches, one after the other."""
    settle: Settled | None = None
    try:
        while (publish := lane.next_to_publish(settle)) is not None:
            lane.heed_partitions()
            since = clock()
            try:
                failures = sender.publish(publish.records, publish.checkpoint)
            except Exception as error:  # noqa: BLE001 - the lane decides what it means
                settle = partial(lane.unpublished, error, clock() - since)
            else:
                settle = partial(lane.published, publish, failures, clock() - since)
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that runs the lane
        lane.end(as_exception(error))
    finally:
        sender.close()
