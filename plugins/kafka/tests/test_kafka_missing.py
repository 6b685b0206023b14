"""Missing and unknown topics: the failures of their records, and the effect on other records."""

from __future__ import annotations

import time
from collections.abc import Collection
from threading import Thread
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from outbox_api import Deliveries, MarkedRecord
from outbox_kafka import KafkaPublisher
from outbox_kafka.produce import missing_topic_failures
from outbox_kafka.sender import KafkaSender
from outbox_kafka.topic_cache import Statuses, TopicCache, TopicStatus
from outbox_kafka.topic_lookup import BackgroundCalls, TopicLookup

from .kafka_access import consume, gather, publisher

PATIENCE = 5.0


def strict(bootstrap: str, **settings: object) -> KafkaPublisher:
    """Creates a publisher whose topics must exist."""
    return publisher(bootstrap, allow_auto_create_topics=False, **settings)


def send(sender: KafkaSender, record: MarkedRecord) -> Deliveries:
    sender.send([record])
    return gather(sender, 1)


def test_a_missing_topic_costs_the_others_nothing(kafka_bootstrap: str, topic: str) -> None:
    kafka = strict(kafka_bootstrap, topic_metadata_propagation_max_ms=3_600_000)
    kafka.prepare([topic], 1)
    lost = [MarkedRecord(i, f"{topic}-missing", f"m{i}", "v") for i in range(5000)]
    sound = [MarkedRecord(i, topic, "k", str(i)) for i in range(5000, 5100)]
    sender = kafka.open("outbox.0")
    sender.send([*lost[:2500], *sound[:50]])
    sender.send([*lost[2500:], *sound[50:]])
    reports = gather(sender, 5100)  # the client itself would keep the first for an hour
    assert reports.delivered == sound
    assert sorted(failure.record for failure in reports.failed) == lost
    assert all(failure.retryable for failure in reports.failed), "it may have been created just now"
    assert sender.close(5) == Deliveries()
    assert [int(message.value() or b"") for message in consume(kafka_bootstrap, topic, 100)] == list(
        range(5000, 5100)
    )


def test_a_missing_topic_is_noticed_once_created(kafka_bootstrap: str, topic: str) -> None:
    kafka = strict(kafka_bootstrap, topic_metadata_propagation_max_ms=700)
    sender, deadline = kafka.open("outbox.0"), time.monotonic() + 60
    while True:
        [failure] = send(sender, MarkedRecord(1, topic, "k", "v")).failed
        assert "create the topic" in failure.reason
        if not failure.retryable:
            break
        assert time.monotonic() < deadline, "it has been missing for longer than a new topic is"
    kafka.prepare([topic], 1)
    while not send(sender, MarkedRecord(3, topic, "k", "v")).delivered:
        assert time.monotonic() < deadline
    sender.close(5)


def test_a_topic_that_is_deleted_and_created_again_is_used_again(kafka_bootstrap: str, topic: str) -> None:
    kafka = strict(kafka_bootstrap)
    kafka.prepare([topic], 1)
    sender, record = kafka.open("outbox.0"), MarkedRecord(1, topic, "k", "v")
    assert send(sender, record).delivered
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + 60
    while not send(sender, record).failed:
        assert time.monotonic() < deadline
    kafka.prepare([topic], 1)
    while not send(sender, record).delivered:
        assert time.monotonic() < deadline
    sender.close(5)


def test_a_topic_that_the_broker_creates_fails_nothing(kafka_bootstrap: str, topic: str) -> None:
    sender = publisher(kafka_bootstrap).open("outbox.0")
    records = [MarkedRecord(i, topic, "k", str(i)) for i in range(200)]
    for at in range(0, 200, 10):
        sender.send(records[at : at + 10])
    assert gather(sender, 200) == Deliveries(delivered=records)
    sender.close(5)


class LookupHarness:
    """A topic look-up with a broker, a clock and a producer that the test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.said: Statuses = {}
        self.asked: list[tuple[set[str], set[str]]] = []
        self.sent: list[int] = []
        self.refused: list[tuple[int, int, bool]] = []
        self.background = BackgroundCalls()
        self.cache = TopicCache(PATIENCE, lambda: self.now)
        self.lookup = TopicLookup(self.cache, self._look_up, self.background, self._produce, self._refuse)
        monkeypatch.setattr("outbox_kafka.topic_lookup.time.monotonic", lambda: self.now)

    def _look_up(self, topics: Collection[str], new: Collection[str]) -> Statuses:
        self.asked.append((set(topics), set(new)))
        return {topic: self.said.get(topic, TopicStatus.UNKNOWN) for topic in topics}

    def _produce(self, records: Collection[MarkedRecord]) -> None:
        self.sent += [record.id for record in records]

    def _refuse(self, records: Collection[MarkedRecord], error: KafkaError, retryable: bool) -> None:
        self.refused += [(record.id, error.code(), retryable) for record in records]

    def send(self, *records: tuple[int, str]) -> None:
        for number, topic in records:
            if topic in self.lookup.existing:
                self.sent.append(number)
            else:
                self.lookup.add(MarkedRecord(number, topic, "k", "v"))
        self.lookup.start()

    def answer(self) -> None:
        while self.background:
            self.background.poll()


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> LookupHarness:
    return LookupHarness(monkeypatch)


NO_TOPIC, NO_NAME, LATE = KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION, KafkaError._TIMED_OUT


def test_what_comes_while_a_topic_is_asked_for_keeps_its_order(harness: LookupHarness) -> None:
    harness.said = {"a": TopicStatus.EXISTS, "b": TopicStatus.MISSING}
    harness.send((1, "a"), (2, "b"), (3, "a"))
    harness.send((4, "a"), (5, "c"))
    assert harness.sent == []
    harness.answer()
    harness.send((6, "a"))
    assert harness.sent == [1, 3, 4, 5, 6], "what the broker does not tell of is left to the client"
    assert harness.refused == [(2, NO_TOPIC, True)]
    assert harness.asked == [({"a", "b"}, {"a", "b"}), ({"c"}, {"c"})]
    assert not harness.lookup


def test_a_missing_topic_is_asked_for_now_and_then_only(harness: LookupHarness) -> None:
    harness.said = {"a": TopicStatus.MISSING}
    for number in range(100):
        harness.send((number, "a"))
        harness.answer()
        harness.now += 0.125
    assert len(harness.asked) in range(20, 26), "every half second, and not while nobody sends"
    assert harness.asked[0][1] == {"a"}
    assert not any(new for _, new in harness.asked[1:]), "only new topics are waited for"
    assert [retryable for _, _, retryable in harness.refused] == [True] * 40 + [False] * 60
    harness.now += 60
    harness.said = {"a": TopicStatus.EXISTS}
    harness.send((100, "a"))
    harness.answer()
    assert harness.sent == [100], "after a while it is asked for before anything is refused"


def test_what_no_topic_can_be_called_fails_for_good(harness: LookupHarness) -> None:
    harness.said = {"!": TopicStatus.INVALID_NAME}
    harness.send((1, "!"))
    harness.answer()
    assert harness.refused == [(1, NO_NAME, False)]


def test_a_lane_that_stood_still_sends_nothing_that_it_had_kept(harness: LookupHarness) -> None:
    harness.said = {"a": TopicStatus.EXISTS}
    harness.send((1, "a"))
    harness.now += 60
    harness.answer()
    assert (harness.sent, harness.refused) == ([], [(1, LATE, True)])
    harness.send((2, "a"))
    assert harness.sent == [2]


def test_a_topic_that_the_client_takes_for_missing_is_asked_for_again(harness: LookupHarness) -> None:
    harness.said = {"a": TopicStatus.EXISTS}
    harness.send((1, "a"))
    harness.answer()
    harness.lookup.on_missing(MarkedRecord(1, "a", "k", "v"))
    assert harness.refused == [(1, NO_TOPIC, True)]
    harness.send((2, "a"))
    harness.answer()
    assert harness.sent == [1, 2]
    assert len(harness.asked) == 2


def test_nobody_waits_for_a_new_topic_just_after_another_was_found_missing() -> None:
    now = [0.0]
    cache = TopicCache(PATIENCE, lambda: now[0])
    assert cache.is_worth_waiting_for("a")
    cache.update({"a": TopicStatus.MISSING})
    assert not cache.is_worth_waiting_for("a")
    assert not cache.is_worth_waiting_for("b")
    now[0] = PATIENCE
    assert cache.is_worth_waiting_for("b")


def test_a_record_of_a_topic_that_brokers_do_not_tell_of_waits_before_its_transaction() -> None:
    said = {"a": TopicStatus.EXISTS, "b": TopicStatus.UNKNOWN, "c": TopicStatus.MISSING}
    records = [MarkedRecord(number, topic, topic, "v") for number, topic in enumerate("aabcb")]
    found = missing_topic_failures(TopicCache(PATIENCE), lambda *_: said, records, {})
    assert [(each.record.id, each.retryable, each.suspect) for each in found] == [
        (2, True, True),
        (3, True, False),
    ]


def test_a_call_that_got_no_thread_is_waited_for_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    background, answers = BackgroundCalls(), list[int]()
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="new thread"):
            background.submit(lambda: 1, answers.append)
    assert not background
    background.submit(lambda: 2, answers.append)
    while background:
        background.poll()
    assert answers == [2]
    background.close()


def test_an_unexpected_error_of_a_call_is_raised_and_holds_up_no_other() -> None:
    background, answers = BackgroundCalls(), list[int]()

    def fails() -> int:
        raise KeyError("orders")

    background.submit(fails, answers.append)
    background.submit(lambda: 2, answers.append)
    raised = list[str]()
    while background:
        try:
            background.poll()
        except KeyError as error:
            raised += error.args
    assert (raised, answers) == (["orders"], [2])
