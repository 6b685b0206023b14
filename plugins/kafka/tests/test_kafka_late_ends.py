"""Requests to end a transaction that are sent twice, of which the first copy arrives late."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException
from outbox_api import DriverError, Failure, MarkedRecord
from outbox_kafka.transaction_log import TransactionLog
from outbox_kafka.transactional_sender import KafkaTransactionalSender
from outbox_servers.services.kafka import KafkaBroker

from .frame_proxy import FrameProxy
from .kafka_access import alter_topic, checkpoint_of, publisher, values

END_TRANSACTION = 26
"""The API key of an EndTxn request."""
PARTITIONS = 3


class Place:
    """A broker, and the proxy in front of it."""

    def __init__(self) -> None:
        self.proxy = FrameProxy(lambda: self.broker.proxied_port)
        self.broker = KafkaBroker(proxy_port=self.proxy.port)
        self.through = f"127.0.0.1:{self.proxy.port}"

    def sent_twice(self, act: Callable[[], list[Failure]]) -> list[Failure]:
        """Has the next request to end a transaction sent twice; returns what ``act`` does, which ends one."""
        self.proxy.hold(END_TRANSACTION)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(act)
            assert self.proxy.held.wait(60)
            self.proxy.cut()
            return result.result(60)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place()
    with place.broker:
        yield place
    place.proxy.close()


@pytest.fixture
def sender(place: Place, topic: str) -> KafkaTransactionalSender:
    kafka = publisher(place.through)
    kafka.prepare([topic], PARTITIONS)
    sender = kafka.open_transactional(f"{topic}.0")
    assert sender.publish(numbered(topic, 1), "first") == []
    return sender


def numbered(topic: str, *numbers: int) -> list[MarkedRecord]:
    return [MarkedRecord(number, topic, f"k{number}", str(number)) for number in numbers]


def goes_on(place: Place, topic: str, former: KafkaTransactionalSender) -> None:
    """Checks that a sender ends, and that what arrives late does the next one no harm."""
    with pytest.raises(DriverError, match="may arrive a second time; open a new sender") as caught:
        former.publish(numbered(topic, 3), "third")
    assert caught.value.retryable
    former.close()
    successor = publisher(place.through).open_transactional(f"{topic}.0")
    assert checkpoint_of(successor) == "second"
    commit = successor._producer.commit

    def commit_late(deadline: float) -> None:
        place.proxy.release()
        time.sleep(0.5)  # nothing shows that the broker has handled it
        commit(deadline)

    successor._producer.commit = commit_late  # type: ignore[method-assign]
    assert successor.publish(numbered(topic, 3), "third") == []
    assert successor.publish(numbered(topic, 4), "fourth") == []
    successor.close()


def test_a_commit_that_was_sent_twice_commits_nothing_later(
    place: Place, topic: str, sender: KafkaTransactionalSender
) -> None:
    assert place.sent_twice(lambda: sender.publish(numbered(topic, 2), "second")) == []
    goes_on(place, topic, sender)
    assert values(place.broker.bootstrap, topic, PARTITIONS) == [1, 2, 3, 4]


def test_an_abort_that_was_sent_twice_aborts_nothing_later(
    place: Place, topic: str, sender: KafkaTransactionalSender
) -> None:
    alter_topic(place.broker.bootstrap, topic, "max.message.bytes", "2000")
    large = MarkedRecord(2, topic, "k2", os.urandom(5000))
    failures = place.sent_twice(lambda: sender.publish([large], "second"))
    assert [failure.record for failure in failures] == [large]
    goes_on(place, topic, sender)
    assert values(place.broker.bootstrap, topic, PARTITIONS) == [1, 3, 4]


def test_an_abort_that_the_broker_knows_nothing_of_has_an_unknown_outcome(
    sender: KafkaTransactionalSender, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contradict(_deadline: float, _call: object) -> None:
        raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "not open"))

    monkeypatch.setattr(sender._producer, "_retry", contradict)
    with pytest.raises(DriverError, match="is unknown") as caught:
        sender.publish([MarkedRecord(2, topic, "k2", "\ud800")], "second")
    assert caught.value.retryable
    sender.close()


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_an_error_of_a_callback_during_an_end_is_an_unknown_outcome(
    sender: KafkaTransactionalSender, topic: str, monkeypatch: pytest.MonkeyPatch, is_commit: bool
) -> None:
    def fail(_log: TransactionLog, _level: int, _template: str, facility: str, *_: str) -> None:
        if facility == "ENDTXN":
            raise OSError("a handler of the log has no room")

    monkeypatch.setattr(TransactionLog, "log", fail)
    value = "2" if is_commit else "\ud800"
    with pytest.raises(DriverError, match="is unknown, as the client's callback raised OSError") as caught:
        sender.publish([MarkedRecord(2, topic, "k2", value)], "second")
    assert caught.value.retryable
    with pytest.raises(DriverError, match="is unknown"):
        sender.publish(numbered(topic, 3), "third")
    sender.close()


def ended(*lines: tuple[str, str]) -> TransactionLog:
    """Returns a log with lines of a facility."""
    log = TransactionLog({})
    log.begin_end()
    for facility, line in lines:
        log.log(logging.DEBUG, "%s %s %s", facility, "client", line)
    return log


ANSWERED = ("ENDTXN", "EndTxn returned NO_ERROR in state CommittingTransaction (may_retry=true)")
BROKEN = ("ENDTXN", "EndTxn returned _TRANSPORT in state CommittingTransaction (may_retry=true)")
NOT_SENT = ("TXNABORT", "[thrd:main]: No partitions registered: not sending EndTxn")


def test_an_end_is_certain_if_each_of_its_requests_was_answered() -> None:
    assert not ended(ANSWERED).is_in_doubt
    assert not ended(NOT_SENT).is_in_doubt
    assert ended(BROKEN, ANSWERED).is_in_doubt
    assert ended(("ENDTXN", "other words"), ANSWERED).is_in_doubt


def test_a_client_with_other_words_costs_time_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    assert ended().is_in_doubt
    assert ended(("TXNSTATE", "other words")).is_in_doubt
    assert caplog.text.count("use a version that outbox was tested with") == 1


def test_lines_that_nobody_has_asked_for_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ended(ANSWERED)
    assert not [line for line in caplog.messages if "TXNSTATE" in line or "ENDTXN" in line]
    asked = TransactionLog({"debug": "msg"})
    assert asked.contexts == "msg,eos"
    asked.log(logging.DEBUG, "%s %s %s", *ANSWERED[:1], "client", ANSWERED[1])
    assert "NO_ERROR" in caplog.text
