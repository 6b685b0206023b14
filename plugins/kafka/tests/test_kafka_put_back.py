"""Records of an aborted transaction that the client has put back: it numbers the next ones like them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from outbox_api import DriverError
from outbox_kafka.transaction_errors import TransactionErrors

from .frame_proxy import PRODUCE
from .kafka_access import publisher, values
from .test_kafka_late_ends import Place, ended, numbered

LED = ("DRAIN", "[thrd:b/1]: orders [0] beginning partition drain: wait for outstanding requests")
PUT_BACK = ("DRAIN", "[thrd:b/1]: orders [0] beginning partition drain: drain before retrying")
NEW_EPOCH = ("GETPID", "[thrd:main]: Acquired PID{Id:1,Epoch:2} (previous PID{Id:1,Epoch:1})")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place()
    with place.broker:
        yield place
    place.proxy.close()


def test_a_record_is_not_taken_for_a_copy_of_an_aborted_one(place: Place, topic: str) -> None:
    """The broker writes a record, its answer is lost, and the transaction is aborted for another one."""
    slow = publisher(place.through, reconnect_backoff_ms=2000, reconnect_backoff_max_ms=2500)
    slow.prepare([topic], 1)
    sender = slow.open_transactional(f"{topic}.0")
    assert sender.publish(numbered(topic, 1), "first") == []
    producer, trace = sender._producer, sender._tracer.next([], set())
    errors = TransactionErrors(sender._store.record("second", trace), trace.time_ms)
    producer.produce([errors.checkpoint], errors, producer.begin())
    place.proxy.hold(PRODUCE)
    producer.send(numbered(topic, 2), errors)
    producer._flush(0.05)
    assert place.proxy.held.wait(60)
    place.proxy.cut()
    place.proxy.release()
    producer._flush(0.3)  # the client has put the record back, and does not reconnect yet
    producer.abort()
    with pytest.raises(DriverError, match="put back, and may have been written; open a new sender") as caught:
        sender.publish(numbered(topic, 2), "second")
    assert caught.value.retryable
    sender.close()
    successor = publisher(place.through).open_transactional(f"{topic}.0")
    assert successor.publish(numbered(topic, 2), "second") == []
    assert successor.publish(numbered(topic, 3), "third") == []
    successor.close()
    assert values(place.broker.bootstrap, topic, 1) == [1, 2, 3]


def test_only_a_new_epoch_makes_up_for_a_request_that_was_put_back() -> None:
    assert not ended(LED).has_put_back
    assert ended(LED, PUT_BACK).has_put_back
    assert not ended(LED, PUT_BACK, NEW_EPOCH).has_put_back
