"""Copies of dead letters: which are made, when, and what becomes of those that no topic takes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from outbox_api import (
    Backlog,
    ConfigError,
    DeadLetter,
    DeadLetterStatus,
    Deliveries,
    DriverError,
    Failure,
    Fence,
    LaneStatus,
    MarkedRecord,
    Parked,
)
from outbox_api.base.bounds import MESSAGE_TOO_LARGE, too_large
from outbox_api.seams.parking import FailureClass
from outbox_core.config import configure
from outbox_core.control.protocol import LaneControl, Orders, Report, decode, encode
from outbox_core.events.metrics import COPIED, LaneMetrics
from outbox_core.harvest import dead_letters
from outbox_core.harvest.dead_letters import DeadLetterCopies
from outbox_core.leadership.leader import Leadership, Totals
from outbox_core.settings import Failures, HarvestSettings
from outbox_core.status.snapshot import Snapshot, as_data

from .fakes import NOW, FakeDialect, FakeLetters

AGE = 10.0
"""How old letters are."""


class Broker:
    """A publisher whose topics refuse what the test says; counts its senders.

    Attributes:
        taken: The messages that arrived.
        refused: Topic → why it takes nothing, and whether that may pass.
        tried: How many messages came for each topic, and of each key.
        largest: The longest value that it takes.
        broken: The errors that the next sends end with.
        silent: Whether it reports nothing.
    """

    def __init__(self) -> None:
        self.taken: list[MarkedRecord] = []
        self.refused: dict[str, tuple[str, bool]] = {}
        self.tried: Counter[str] = Counter()
        self.largest = 100
        self.broken: list[Exception] = []
        self.opened: list[str] = []
        self.closed = 0
        self._reports = Deliveries()

    def open(self, lane: str) -> Broker:
        self.opened.append(lane)
        return self

    def send(self, records):
        if self.broken:
            raise self.broken.pop(0)
        for each in records:
            self.tried.update((each.topic, each.key))
            if refusal := self.refused.get(each.topic):
                self._reports.failed.append(Failure(each, refusal[0], retryable=refusal[1]))
            elif len(each.value or "") > self.largest:
                self._reports.failed.append(Failure(each, MESSAGE_TOO_LARGE, retryable=False))
            else:
                self.taken.append(each)
                self._reports.delivered.append(each)

    def poll(self, timeout):
        reports, self._reports = self._reports, Deliveries()
        return reports

    def close(self, timeout):
        self.closed += 1
        return Deliveries()


class Outbox:
    """An outbox whose dead letters are copied under one leadership after the other."""

    def __init__(self, topic: str) -> None:
        self.letters = FakeLetters()
        self.read: list[int] = []
        find = self.letters.find

        def reading(*arguments, whole=True, **options):
            if whole:
                self.read += options["ids"]
            return find(*arguments, whole=whole, **options)

        self.letters.find = reading  # type: ignore[method-assign]  # it tells what is read
        self.broker = Broker()
        self.totals = Totals()
        self.settings = SimpleNamespace(
            outbox="outbox",
            failures=Failures(topic=topic),
            transforms=(),
            dialect=SimpleNamespace(create=lambda: FakeDialect(letters=self.letters)),
            publisher=SimpleNamespace(create=lambda: self.broker),
        )
        self.leadership = Leadership(7, lambda: 3.0)
        self.copies: DeadLetterCopies | None = None

    def lead(self, until: str = "") -> None:
        self.resign()
        self.leadership = Leadership(7, lambda: 3.0)
        settings = cast("Any", self.settings)
        self.copies = DeadLetterCopies(settings, self.leadership, self.totals, "0123456789ab", until)
        self.copies.start()

    def resign(self) -> None:
        self.leadership.stop()
        if self.copies is not None:
            self.copies.join()

    def said(self) -> Any:
        """Returns what the first lane's heartbeats say."""
        control = LaneControl()
        control.follow(decode(Orders, encode(self.leadership.exchange(Report(7, 0, "first", {})))), 0.0)
        return control.about.get(COPIED)

    def park(self, *letters: DeadLetter) -> None:
        """Adds letters, of which the lanes tell."""
        self.letters.kept += letters
        metrics = LaneMetrics(parked=len(self.letters.kept))
        self.leadership.exchange(Report(7, 0, "first", {0: metrics}))

    def topics(self) -> list[str]:
        return [each.topic for each in self.broker.taken]


def letter(number: int, reason: str = "odd", since: datetime = NOW, **record: Any) -> DeadLetter:
    values = {"topic": "orders", "key": f"k{number}", "value": "v", "headers": [("h", "1")], **record}
    return DeadLetter(MarkedRecord(number, **values), reason, 5, since, AGE, DeadLetterStatus.PARKED)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def outbox(monkeypatch):
    monkeypatch.setattr(dead_letters, "STEP_SECONDS", 0.002)
    monkeypatch.setattr(dead_letters, "TROUBLE_SECONDS", 0.002)
    made = Outbox("dead-letters.{class}")
    yield made
    made.resign()


def test_a_letter_is_copied_once_to_the_topic_of_its_class(outbox):
    outbox.lead()
    outbox.park(letter(1, MESSAGE_TOO_LARGE), letter(2, "transform 'filter' raised ValueError"))
    until(outbox.said)
    outbox.park(letter(3))
    until(lambda: len(outbox.broker.taken) == 3)
    outbox.resign()
    assert outbox.topics() == ["dead-letters.too-large", "dead-letters.transform", "dead-letters.other"]
    first = outbox.broker.taken[0]
    assert (first.key, first.value, first.partition) == ("k1", "v", None)
    assert first.headers == [
        ("h", "1"),
        ("outbox-id", "0123456789ab:1"),
        ("dead-letter-class", "too-large"),
        ("dead-letter-reason", MESSAGE_TOO_LARGE),
        ("dead-letter-topic", "orders"),
        ("dead-letter-attempts", "5"),
        ("dead-letter-since", NOW.isoformat()),
    ]
    assert outbox.broker.opened == ["outbox.dead-letters"]
    assert (outbox.broker.closed, outbox.letters.closed) == (1, True)


def test_a_letter_that_does_not_fit_comes_without_its_value(outbox):
    outbox.park(letter(1, value="x" * 101, key="l" * 1002), letter(2, too_large(1 << 40), key="k" * 1001))
    outbox.lead()
    until(lambda: len(outbox.broker.taken) == 2)
    without = ("dead-letter-without", "value, headers")
    assert [(each.value, each.headers[0][0], each.headers[-1]) for each in outbox.broker.taken] == [
        (None, "outbox-id", without),
        (None, "outbox-id", without),
    ]
    assert [each.key for each in outbox.broker.taken] == ["l" * 1002, "k" * 1000]
    assert outbox.read == [1]  # a row that was too large for a lane is never read
    assert outbox.totals.uncopied == 0


def test_a_copy_has_nothing_that_transforms_have_not_seen(outbox):
    outbox.settings.transforms = ("redact",)
    outbox.park(letter(1, "transform 'redact' raised ValueError", key="l" * 1002))
    outbox.lead()
    until(lambda: outbox.broker.taken)
    [copy] = outbox.broker.taken
    assert (copy.key, copy.value, copy.headers[0][0]) == ("l" * 1002, None, "outbox-id")
    assert copy.headers[-1] == ("dead-letter-without", "value, headers")


def test_the_end_of_a_harvest_waits_for_no_pause(outbox, monkeypatch):
    monkeypatch.setattr(dead_letters, "STEP_SECONDS", 3600.0)
    monkeypatch.setattr(dead_letters, "END_SECONDS", 60.0)
    outbox.park(letter(1))
    outbox.lead()
    until(lambda: outbox.broker.taken)
    outbox.resign()
    assert outbox.broker.closed == 1


def test_what_heartbeats_say_of_copies_is_no_figure_of_a_lane():
    lane = LaneStatus(Fence(0, 1, 7, 1), "a", NOW, NOW, 1.0, {COPIED: NOW.isoformat(), "purged_total": 3})
    taken = Snapshot("outbox", Backlog(0, True, None), Parked(0, None), [lane], 15.0)
    assert COPIED not in as_data(taken)["lanes"][0]


def test_a_topic_that_refuses_is_said_once_and_holds_nothing_up(outbox, logged):
    outbox.broker.refused["dead-letters.other"] = "not permitted", False
    outbox.lead()
    outbox.park(letter(1), letter(2), letter(3, MESSAGE_TOO_LARGE))
    until(lambda: outbox.topics() == ["dead-letters.too-large"])
    outbox.park(letter(4), letter(5, MESSAGE_TOO_LARGE))
    until(lambda: outbox.topics() == ["dead-letters.too-large"] * 2)
    outbox.resign()
    assert (outbox.totals.uncopied, outbox.broker.tried["dead-letters.other"]) == (3, 3)
    [line] = logged("outbox.harvest")
    assert line.message == (
        "dead letters are in their table only ('outbox parked list'), not in the topic"
        " 'dead-letters.other': not permitted"
    )


def test_what_may_pass_is_tried_again_and_left_to_a_successor(outbox, logged):
    other = "dead-letters.other"
    outbox.broker.refused[other] = "too few replicas", True
    outbox.lead()
    early = NOW - timedelta(seconds=5)
    outbox.park(letter(1, since=early), letter(2), letter(3, MESSAGE_TOO_LARGE))
    until(outbox.said)
    said = outbox.said()
    assert said == early.isoformat()  # not beyond what is left
    outbox.resign()
    tried = outbox.broker.tried[other]
    outbox.lead(said)
    until(lambda: outbox.broker.tried[other] > tried + 3)
    assert outbox.broker.tried["k2"] == 0  # its topic fails
    outbox.broker.refused.clear()
    until(lambda: outbox.topics().count(other) == 2)
    until(lambda: outbox.said() == (early + timedelta(seconds=AGE)).isoformat())
    assert outbox.totals.uncopied == 0
    assert len(logged("outbox.harvest")) == 2  # once for each leader


def test_a_successor_copies_what_its_predecessor_had_not_and_what_was_parked_shortly_before(outbox):
    old, skipped = NOW - timedelta(hours=1), DeadLetterStatus.SKIPPED
    outbox.letters.kept = [
        letter(1, since=old),
        letter(2, since=NOW - timedelta(seconds=59)),
        letter(3, since=NOW + timedelta(seconds=1)),
        replace(letter(4, since=old), status=skipped),
        replace(letter(5, since=NOW + timedelta(seconds=1)), status=skipped),
    ]
    outbox.lead(NOW.isoformat())
    until(lambda: outbox.said() != NOW.isoformat())
    assert [each.key for each in outbox.broker.taken] == ["k2", "k3", "k5"]
    assert outbox.said() == (old + timedelta(seconds=AGE)).isoformat()


def test_without_a_predecessor_all_that_is_parked_is_copied(outbox):
    skipped = replace(letter(2), status=DeadLetterStatus.SKIPPED)
    outbox.letters.kept = [letter(1, since=datetime(2020, 1, 1, tzinfo=UTC)), skipped]
    outbox.lead()
    until(outbox.said)
    assert [each.key for each in outbox.broker.taken] == ["k1"]


def test_a_letter_that_is_parked_again_is_copied_again_and_one_that_is_skipped_is_not(outbox):
    outbox.lead()
    outbox.park(letter(1), letter(2))
    until(lambda: len(outbox.broker.taken) == 2)
    later = NOW + timedelta(seconds=3)
    again = replace(letter(1), since=later)
    outbox.letters.kept = [again, replace(letter(2), since=later, status=DeadLetterStatus.SKIPPED)]
    outbox.park(letter(3))
    until(lambda: len(outbox.broker.taken) == 4)
    assert [each.key for each in outbox.broker.taken] == ["k1", "k2", "k1", "k3"]


def test_a_sender_that_breaks_is_replaced(outbox, logged):
    outbox.broker.broken = [DriverError("the broker is gone", retryable=True)] * 2
    outbox.park(letter(1))
    outbox.lead()
    until(lambda: len(outbox.broker.taken) == 1)
    assert outbox.broker.opened == ["outbox.dead-letters"] * 3
    assert outbox.broker.closed == 2
    [line] = logged("outbox.harvest")
    assert line.message == "cannot copy dead letters, trying again: the broker is gone"


def test_a_letter_that_an_operator_has_freed_meanwhile_is_left_out(outbox):
    find = outbox.letters.find
    outbox.letters.find = lambda *a, whole=True, **o: [] if whole else find(*a, whole=whole, **o)
    outbox.park(letter(1))
    outbox.lead()
    until(outbox.said)
    assert outbox.broker.taken == []
    assert outbox.totals.uncopied == 0


def configured(topic: str, **harvest: Any) -> HarvestSettings:
    return configure({"harvest": {"engine": "inline", "failures": {"topic": topic}, **harvest}}).harvest


def test_the_publisher_learns_of_the_topics_to_check_them():
    one = configured("letters")
    assert one.failures.topics == one.publisher.options.dead_letter_topics == ("letters",)
    several = configured("letters.{class}").publisher.options.dead_letter_topics
    assert several[:2] == ("letters.too-large", "letters.unknown-topic")
    assert len(several) == len(FailureClass)
    assert configure({"harvest": {}}).harvest.publisher.options.dead_letter_topics == ()


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("letters {class}", "dead letters cannot go to 'letters too-large': a topic has 1 to 249 letters"),
        ("letters.{kind}", "dead letters cannot go to 'letters.{kind}'"),
        ("x.neli", "the topic 'x.neli' is one that outbox itself uses"),
        ("own-checkpoints", "dead letters cannot go to 'own-checkpoints', which outbox itself uses"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(topic, words):
    with pytest.raises(ConfigError) as refused:
        configured(topic, publisher={"driver": "kafka", "checkpointTopic": "own-checkpoints"})
    assert words in str(refused.value)
