"""The suites for publishers: records arrive unchanged, and every record is reported once.

The complete test file of a publisher::

    class TestKafka(PublisherConformance, TransactionalConformance):
        @pytest.fixture
        def publisher(self, kafka_bootstrap):
            return PublisherUnderTest("kafka", {"kafka": {"bootstrap.servers": kafka_bootstrap}}, read)

where ``read`` reads a topic with the broker's own client, because the contract cannot. A publisher without
transactions leaves out the second suite. Add :class:`RunConformance` if its senders send runs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from outbox_api import (
    MAX_CHECKPOINT,
    Deliveries,
    DriverError,
    Failure,
    Finding,
    Header,
    Level,
    MarkedRecord,
    Publisher,
    RunSender,
    Seam,
    Sender,
    TransactionalPublisher,
    TransactionalSender,
    find,
)

PARTITIONS = 3
PATIENCE = 60
_BEFORE_RUNS = -600
"""The lowest number of records that are sent before runs: a sender may take a minute to be ready."""


class Message(NamedTuple):
    """A message that a reader of committed messages receives.

    Attributes:
        key: The key.
        value: The value; ``None`` for a tombstone.
        headers: The headers in order.
        partition: The partition.
    """

    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int


@dataclass(frozen=True)
class PublisherUnderTest:
    """A publisher, and a function that reads what it has published.

    Attributes:
        driver: The publisher's driver name.
        options: Its options, by the names of their fields.
        read: Returns all committed messages of a topic with that number of partitions, in the order of each.
    """

    driver: str
    options: Mapping[str, Any]
    read: Callable[[str, int], Sequence[Message]]


class TopicUnderTest:
    """A publisher as the tests use it, with its own topic; closes at the end what it opened."""

    def __init__(self, under: PublisherUnderTest, topic: str, stack: ExitStack) -> None:
        driver = find(Seam.PUBLISHER, under.driver)
        self.publisher: Publisher = driver.create(driver.options(**under.options))
        self.topic = topic
        self._read = under.read
        self._stack = stack
        self.publisher.prepare([topic], PARTITIONS)

    def open(self) -> Sender:
        sender = self.publisher.open(f"{self.topic}.0")
        self._stack.callback(sender.close, 0)
        return sender

    def open_transactional(self, lane: int = 0) -> TransactionalSender:
        assert isinstance(self.publisher, TransactionalPublisher)
        sender = self.publisher.open_transactional(f"{self.topic}.{lane}")
        self._stack.callback(sender.close)
        return sender

    def read(self) -> Sequence[Message]:
        return self._read(self.topic, PARTITIONS)

    def records(self, count: int, first: int = 1, keys: int = 7) -> list[MarkedRecord]:
        return [
            MarkedRecord(number, self.topic, f"k{number % keys}", str(number))
            for number in range(first, first + count)
        ]

    def values(self) -> list[int]:
        """Returns the numbers of the records that arrived, sorted."""
        return sorted(int(message.value or b"") for message in self.read())


def checkpoint_of(sender: TransactionalSender, location: str = "") -> str | None:
    """Returns the checkpoint of the lane's last attempt, if there is any."""
    attempt = sender.attempt(location)
    return attempt and attempt.checkpoint


def trace_of(sender: TransactionalSender) -> str:
    """Returns by what the records of the lane's last attempt are recognised."""
    attempt = sender.attempt()
    assert attempt is not None
    return attempt.trace


def gather(sender: Sender, count: int) -> Deliveries:
    """Polls until that number of records is reported."""
    gathered, deadline = Deliveries(), time.monotonic() + PATIENCE
    while len(gathered.delivered) + len(gathered.failed) < count:
        assert time.monotonic() < deadline, f"only {gathered}"
        reports = sender.poll(1)
        gathered.delivered += reports.delivered
        gathered.failed += reports.failed
    return gathered


def every_kind(topic: str) -> list[MarkedRecord]:
    """Returns records with all that a record may have, of which some are equal."""
    headers: list[Header] = [("a", "1"), ("a", b"\x00\xff"), ("ü", "🌍"), ("none", None), ("empty", "")]
    return [
        MarkedRecord(1, topic, "k", "Grüße ✓ 🌍", headers, partition=0),
        MarkedRecord(2, topic, "", b"\x00\xff", tuple(headers)),
        MarkedRecord(3, topic, "ключ", None),
        MarkedRecord(4, topic, "k", "", timestamp_ms=1_600_000_000_123),
        MarkedRecord(5, topic, "k", "equal"),
        MarkedRecord(6, topic, "k", "equal"),
        MarkedRecord(7, topic, "other", "equal"),
    ]


def assert_in_order(messages: Sequence[Message]) -> None:
    """Checks the order of each key's numbers."""
    latest: dict[bytes, int] = defaultdict(lambda: _BEFORE_RUNS - 1)
    homes: dict[bytes, int] = {}
    for message in messages:
        number = int(message.value or b"")
        assert latest[message.key] < number
        assert homes.setdefault(message.key, message.partition) == message.partition
        latest[message.key] = number


def open_runs(under_test: TopicUnderTest) -> RunSender:
    """Opens a sender, and has it deliver records until others may follow."""
    sender = under_test.open()
    assert isinstance(sender, RunSender)
    for number in range(_BEFORE_RUNS, 0):
        [record] = under_test.records(1, first=number)
        sender.send_runs([record], [])
        [record] = gather(sender, 1).delivered
        if record.partition is not None:
            return sender
        time.sleep(0.1)
    pytest.fail("the sender named no partition of a first record within a minute")


def runs_of(
    under_test: TopicUnderTest, count: int, keys: int = 4, first: int = 1
) -> list[list[MarkedRecord]]:
    """Returns a run for each key."""
    records = under_test.records(count * keys, first, keys)
    return [[each for each in records if each.key == f"k{key}"] for key in range(keys)]


def send_runs(
    sender: RunSender, runs: Sequence[Sequence[MarkedRecord]]
) -> tuple[list[MarkedRecord], list[Failure]]:
    """Sends the first record of each run, and then what follows those that were delivered."""
    sender.send_runs([run[0] for run in runs], [])
    first = gather(sender, len(runs))
    places = {each.key: each.partition for each in first.delivered}
    others = [
        each._replace(partition=places[each.key]) for run in runs for each in run[1:] if each.key in places
    ]
    sender.send_runs([], others)
    rest = gather(sender, len(others))
    return first.delivered + rest.delivered, first.failed + rest.failed


def ids_by_key(records: Sequence[MarkedRecord]) -> dict[str, list[int]]:
    """Returns key → its ids, in the order given."""
    ids: dict[str, list[int]] = {}
    for each in records:
        ids.setdefault(each.key, []).append(each.id)
    return ids


class Publishing:
    """A theme. The plugin's subclass provides the fixture ``publisher``, a :class:`PublisherUnderTest`."""

    @pytest.fixture
    def under_test(self, publisher: PublisherUnderTest) -> Iterator[TopicUnderTest]:
        """The publisher under test, with a topic that was never used before."""
        with ExitStack() as stack:
            yield TopicUnderTest(publisher, f"conformance-{uuid4().hex}", stack)


class PublisherConformance(Publishing):
    """What every publisher must do."""

    def test_records_arrive_as_they_are(self, under_test: TopicUnderTest) -> None:
        headers: list[Header] = [("a", "1"), ("a", b"\x00\xff"), ("ü", "🌍"), ("none", None), ("empty", "")]
        records = [
            MarkedRecord(1, under_test.topic, "k", "Grüße ✓ 🌍", headers, partition=0),
            MarkedRecord(2, under_test.topic, "", b"\x00\xff", tuple(headers), partition=0),
            MarkedRecord(3, under_test.topic, "ключ", None, partition=0),
            MarkedRecord(4, under_test.topic, "k", "", partition=0, timestamp_ms=1_600_000_000_123),
            MarkedRecord(5, under_test.topic, "k", "v" * 500_000, partition=0),
        ]
        sender = under_test.open()
        sender.send(records)
        assert gather(sender, 5) == Deliveries(delivered=records)
        sent = [("a", b"1"), ("a", b"\x00\xff"), ("ü", "🌍".encode()), ("none", None), ("empty", b"")]
        assert under_test.read() == [
            Message(b"k", "Grüße ✓ 🌍".encode(), sent, 0),
            Message(b"", b"\x00\xff", sent, 0),
            Message("ключ".encode(), None, [], 0),
            Message(b"k", b"", [], 0),
            Message(b"k", b"v" * 500_000, [], 0),
        ]

    def test_every_record_is_reported_once_and_keys_keep_their_order(
        self, under_test: TopicUnderTest
    ) -> None:
        sender, records = under_test.open(), under_test.records(2000)
        for at in range(0, 2000, 100):
            sender.send(records[at : at + 100])
        reports = gather(sender, 2000)
        assert reports.failed == []
        assert sorted(reports.delivered) == records
        assert sender.poll(0) == sender.close(PATIENCE) == Deliveries()
        messages = under_test.read()
        assert len(messages) == 2000
        assert_in_order(messages)

    @pytest.mark.parametrize("fault", ["no text", "no topic", "partition"])
    def test_a_record_that_cannot_be_sent_fails_alone(self, under_test: TopicUnderTest, fault: str) -> None:
        sound = under_test.records(3)
        faulty = {
            "no text": MarkedRecord(9, under_test.topic, "k", "\ud800"),
            "no topic": MarkedRecord(9, "", "k", "v"),
            "partition": MarkedRecord(9, under_test.topic, "k", "v", partition=PARTITIONS + 90),
        }[fault]
        sender = under_test.open()
        sender.send([*sound[:2], faulty, sound[2]])
        reports = gather(sender, 4)
        assert sorted(reports.delivered) == sound
        assert [(failure.record, failure.retryable) for failure in reports.failed] == [(faulty, False)]
        assert reports.failed[0].reason
        assert under_test.values() == [1, 2, 3]

    def test_closing_delivers_what_is_under_way(self, under_test: TopicUnderTest) -> None:
        sender, records = under_test.open(), under_test.records(500)
        sender.send(records)
        assert sorted(sender.close(PATIENCE).delivered) == records
        assert sender.close(PATIENCE) == Deliveries()
        assert len(under_test.read()) == 500

    def test_preparing_creates_what_is_missing(self, under_test: TopicUnderTest) -> None:
        other = f"{under_test.topic}-other"
        assert list(under_test.publisher.prepare([under_test.topic, other], 1)) == [other]
        assert list(under_test.publisher.prepare([under_test.topic, other], 1)) == []
        assert list(under_test.publisher.prepare([], 1)) == []

    @pytest.mark.parametrize("transactional", [False, True])
    def test_the_check_tells_findings_with_their_cures(
        self, under_test: TopicUnderTest, transactional: bool
    ) -> None:
        findings = under_test.publisher.check(transactional=transactional)
        assert findings
        assert all(isinstance(finding, Finding) for finding in findings)
        assert all(finding.cure for finding in findings if finding.level is not Level.OK)
        assert transactional or Level.ERROR not in {finding.level for finding in findings}


class RunConformance(Publishing):
    """What a publisher must do whose senders are run senders: the log has a prefix of each run."""

    def test_what_follows_the_first_record_of_a_run_comes_to_its_partition(
        self, under_test: TopicUnderTest
    ) -> None:
        sender, runs = open_runs(under_test), runs_of(under_test, 200)
        delivered, failed = send_runs(sender, runs)
        assert failed == []
        assert len({(each.key, each.partition) for each in delivered}) == len(runs)
        assert all(each.partition is not None for each in delivered)
        assert ids_by_key(delivered) == {run[0].key: [each.id for each in run] for run in runs}
        messages = under_test.read()
        assert sum(int(each.value or b"") > 0 for each in messages) == sum(map(len, runs))
        assert_in_order(messages)

    @pytest.mark.parametrize("place", [0, 1, 100, 199])
    @pytest.mark.parametrize("fault", ["no text", "too large"])
    def test_a_refused_record_stops_what_follows_it_in_its_run(
        self, under_test: TopicUnderTest, fault: str, place: int
    ) -> None:
        sender, runs = open_runs(under_test), runs_of(under_test, 200)
        faulty = {"no text": "\ud800", "too large": "v" * 20_000_000}[fault]
        runs[1][place] = runs[1][place]._replace(value=faulty)
        delivered, failed = send_runs(sender, runs)
        stopped = len(runs[1]) if place else 1  # records that were handed over
        assert sorted([each.id for each in delivered] + [each.record.id for each in failed]) == sorted(
            each.id for run in runs for each in (run[:stopped] if run is runs[1] else run)
        )
        arrived, known = set(under_test.values()), ids_by_key(delivered)
        for run in runs:
            ids = [each.id for each in run]
            there = [number for number in ids if number in arrived]
            assert there == ids[: len(there)]
            assert known.get(run[0].key, []) == there[: len(known.get(run[0].key, []))]
        assert not arrived & {each.id for each in runs[1][place:]}
        again = runs_of(under_test, 20, first=10_000)
        assert send_runs(sender, again)[1] == []


class TransactionalConformance(Publishing):
    """What a publisher must do for exactly-once delivery."""

    def test_a_batch_and_its_checkpoint_are_there_together(self, under_test: TopicUnderTest) -> None:
        sender, first, second = under_test.open_transactional(), "2 first", "2 second"
        assert checkpoint_of(sender) is None
        assert sender.publish(under_test.records(500), first) == []
        assert checkpoint_of(sender) == first
        assert sender.publish(under_test.records(10, 501), f"{first},{second}") == []
        assert sender.publish([], second) == []
        assert checkpoint_of(sender) == second
        sender.close()
        sender.close()
        messages = under_test.read()
        assert len(messages) == 510
        assert_in_order(messages)
        assert checkpoint_of(under_test.open_transactional()) == second

    @pytest.mark.parametrize("length", [1, MAX_CHECKPOINT])
    def test_a_checkpoint_may_be_any_ascii_text(self, under_test: TopicUnderTest, length: int) -> None:
        characters = "".join(map(chr, range(32, 127)))
        checkpoint = (characters * (length // len(characters) + 1))[-length:]
        sender = under_test.open_transactional()
        assert sender.publish(under_test.records(1), checkpoint) == []
        assert checkpoint_of(sender) == checkpoint
        assert checkpoint_of(under_test.open_transactional()) == checkpoint

    def test_of_a_batch_that_fails_nothing_is_seen_and_its_culprits_are_named(
        self, under_test: TopicUnderTest
    ) -> None:
        sender, before = under_test.open_transactional(), "before"
        assert sender.publish(under_test.records(1), before) == []
        faulty = [
            MarkedRecord(12, under_test.topic, "a", "\ud800"),
            MarkedRecord(13, under_test.topic, "b", "13", partition=PARTITIONS + 90),
        ]
        failures = sender.publish([*under_test.records(5, 2), *faulty, *under_test.records(5, 20)], "another")
        assert [(failure.record.id, failure.retryable) for failure in failures] == [(12, False), (13, False)]
        assert sender.publish(under_test.records(2, 30), "another") == []
        assert under_test.values() == [1, 30, 31]

    def test_opening_a_lane_ends_whoever_had_it(self, under_test: TopicUnderTest) -> None:
        first, kept = under_test.open_transactional(), "kept"
        assert first.publish(under_test.records(1), kept) == []
        second = under_test.open_transactional()
        for _ in range(2):
            with pytest.raises(DriverError) as caught:
                first.publish(under_test.records(3, 10), "another")
            assert caught.value.retryable
        assert checkpoint_of(second) == kept
        assert second.publish(under_test.records(1, 2), "another") == []
        assert under_test.values() == [1, 2]

    def test_a_checkpoint_is_at_a_place_that_has_a_name(self, under_test: TopicUnderTest) -> None:
        sender, first = under_test.open_transactional(), "first"
        assert sender.publish(under_test.records(1), first) == []
        assert sender.location
        assert checkpoint_of(sender, sender.location) == first
        successor = under_test.open_transactional()
        assert successor.location == sender.location
        assert checkpoint_of(successor, sender.location) == first

    def test_records_of_the_last_attempt_are_found_one_by_one(self, under_test: TopicUnderTest) -> None:
        sender, records = under_test.open_transactional(), every_kind(under_test.topic)
        assert sender.publish(records, "published") == []
        others = [each._replace(id=each.id + 100, key=f"{each.key}!") for each in records]
        for looking in (sender, under_test.open_transactional()):
            attempt = looking.attempt()
            assert attempt is not None
            found = looking.find([*others, *records], attempt.trace)
            assert sorted(found.published) == [record.id for record in records]
            assert not found.undecided

    def test_equal_records_of_an_earlier_transaction_are_not_taken_for_those_of_the_last(
        self, under_test: TopicUnderTest
    ) -> None:
        sender, same = under_test.open_transactional(), every_kind(under_test.topic)
        assert sender.publish(same, "first") == []
        assert sender.publish(under_test.records(3, 50), "second") == []
        attempt = sender.attempt()
        assert attempt is not None
        found = sender.find([*same, *under_test.records(3, 50)], attempt.trace)
        assert sorted(found.published) == [50, 51, 52]
        assert not found.undecided

    def test_records_of_an_earlier_attempt_are_found_by_its_trace(self, under_test: TopicUnderTest) -> None:
        sender = under_test.open_transactional()
        assert sender.publish(under_test.records(3), "first") == []
        earlier = trace_of(sender)
        assert sender.publish(under_test.records(3, 50), "second") == []
        found = under_test.open_transactional().find(under_test.records(3), earlier)
        assert sorted(found.published) == [1, 2, 3]
        assert not found.undecided

    def test_without_records_the_log_tells_whether_the_checkpoint_was_committed(
        self, under_test: TopicUnderTest
    ) -> None:
        sender, faulty = under_test.open_transactional(), MarkedRecord(9, under_test.topic, "k", "\ud800")
        assert sender.publish(under_test.records(1), "first") == []
        assert sender.publish([*under_test.records(3, 2), faulty], "aborted")
        assert sender.publish(under_test.records(1, 10), "second") == []
        assert sender.find((), trace_of(sender)).committed
        assert sender.publish([*under_test.records(3, 20), faulty], "aborted")
        attempt = under_test.open_transactional().attempt()
        assert attempt is not None
        found = under_test.open_transactional().find((), attempt.trace)
        assert found.committed is (attempt.checkpoint == "second")

    def test_lanes_have_checkpoints_of_their_own(self, under_test: TopicUnderTest) -> None:
        senders = [under_test.open_transactional(lane) for lane in range(2)]
        checkpoints = ["one", "two"]
        for sender, each in zip(senders, checkpoints, strict=True):
            assert sender.publish(under_test.records(1), each) == []
        assert [checkpoint_of(sender) for sender in senders] == checkpoints
