"""Senders behind a chain: every row is reported once, when all that is made of it is known, in both modes."""

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest
from outbox_api import Attempt, Deliveries, Failure, Found, MarkedRecord, Outgoing, TransformError
from outbox_core.transforms.chain import Chain
from outbox_core.transforms.senders import TransformingSender, TransformingTransactionalSender


class Multiplies:
    """Makes as many records of one as its value says, of two topics; none of a value that is no number."""

    def apply(self, record: Outgoing) -> list[Outgoing]:
        if record.value == "bad":
            raise TransformError("it is bad")
        number = int(str(record.value))
        return [
            record._replace(topic=f"{record.topic}{part % 2}", value=f"{record.id}.{part}")
            for part in range(number)
        ]


class Copies:
    """Makes two of each record."""

    def apply(self, record: Outgoing) -> list[Outgoing]:
        return [record, record]


CHAIN = Chain([("multiplies", Multiplies())], "f" * 16)
NOBODY = Chain([], "")


def permitted(topic: str) -> str:
    return f"the topic '{topic}' is forbidden" if topic.startswith("forbidden") else ""


def row(number: int, value: str | None = "1", key: str = "k", topic: str = "t") -> MarkedRecord:
    return MarkedRecord(number, topic, key, value)


class MemorySender:
    """Delivers or fails what it was given, when it is told to, in any order of keys."""

    def __init__(self) -> None:
        self.open: list[MarkedRecord] = []
        self.log: list[MarkedRecord] = []
        self.reports = Deliveries()

    def send(self, records: Sequence[MarkedRecord]) -> None:
        assert records
        self.open += records

    def deliver(self, record: MarkedRecord) -> None:
        self.open.remove(record)
        self.log.append(record)
        self.reports.delivered.append(record)

    def fail(self, record: MarkedRecord) -> None:
        self.open.remove(record)
        self.reports.failed.append(Failure(record, "no luck", retryable=True))

    def poll(self, timeout: float) -> Deliveries:
        reports, self.reports = self.reports, Deliveries()
        return reports

    def close(self, timeout: float) -> Deliveries:
        return self.poll(timeout)

    def values(self) -> list[object]:
        return [record.value for record in self.log]


class Chokes(MemorySender):
    """Raises what nobody expects for one row."""

    location = "here"

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        for record in records:
            if record.value == "odd":
                raise ValueError(record.value)
        return []


@pytest.mark.parametrize("chain", [NOBODY, Chain([("copies", Copies())], "c" * 16)], ids=["none", "one"])
def test_a_row_with_an_error_that_nobody_expects_is_found_by_halving(chain: Chain) -> None:
    rows = [row(number, "odd" if number == 700 else "1", f"k{number}") for number in range(1000)]
    sender = TransformingTransactionalSender(Chokes(), chain, permitted)  # type: ignore[arg-type]
    tries, count = 0, 1000
    while rows:
        failures = sender.publish(rows[:count], "checkpoint")
        tries += 1
        if not failures:
            rows, count = rows[count:], count * 2
            continue
        [failure] = failures
        count = rows.index(failure.record)
        assert "odd" not in failure.reason
        if not failure.retryable:
            assert (failure.record.id, count) == (700, 0)
            rows, count = rows[1:], 1000
    assert tries < 60


def sending(broker: MemorySender, leading: list[bool] | None = None) -> TransformingSender:
    leads = leading or [True]
    return TransformingSender(broker, CHAIN, permitted, lambda: leads[-1])


def test_a_row_is_delivered_with_the_last_that_is_made_of_it():
    broker, one = MemorySender(), row(1, "3")
    sender = sending(broker)
    sender.send([one])
    for part in range(3):
        assert [each.value for each in broker.open] == [f"1.{part}"]
        broker.deliver(broker.open[0])
        assert sender.poll(0) == Deliveries(delivered=[one] if part == 2 else [])
    assert sender.poll(0) == sender.close(0) == Deliveries()


def test_a_row_of_which_nothing_is_made_is_delivered_without_being_sent():
    broker, nothing = MemorySender(), row(1, "0")
    sender = sending(broker)
    sender.send([nothing])
    assert not broker.open
    assert sender.poll(0) == Deliveries(delivered=[nothing])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(1, "bad"), "transform 'multiplies': it is bad"),
        (row(1, "x"), "transform 'multiplies' raised ValueError"),
        (row(1, "2", topic="forbidden"), "after its transforms, the topic 'forbidden0' is forbidden"),
    ],
)
def test_a_row_that_cannot_be_transformed_fails_alone(bad: MarkedRecord, reason: str):
    broker, good = MemorySender(), row(2, key="other")
    sender = sending(broker)
    sender.send([bad, good])
    [failure] = sender.poll(0).failed
    assert (failure.record, failure.retryable) == (bad, False)
    assert failure.reason.startswith(reason)
    broker.deliver(broker.open[0])
    assert sender.poll(0).delivered == [good]


def test_a_row_fails_with_the_first_that_fails_and_nothing_more_of_it_is_sent():
    broker, one = MemorySender(), row(1, "3")
    sender = sending(broker)
    sender.send([one])
    broker.deliver(broker.open[0])
    sender.poll(0)
    broker.fail(broker.open[0])
    assert sender.poll(0) == Deliveries(failed=[Failure(one, "no luck", retryable=True)])
    assert not broker.open
    assert broker.values() == ["1.0"]


def test_nothing_more_of_a_row_is_sent_after_the_lease():
    broker, one, leading = MemorySender(), row(1, "2"), [True]
    sender = sending(broker, leading)
    sender.send([one])
    broker.deliver(broker.open[0])
    leading.append(False)
    [failure] = sender.poll(0).failed
    assert (failure.record, failure.retryable) == (one, True)
    assert not broker.open


def test_what_follows_is_not_sent_by_a_sender_that_closes():
    broker, one = MemorySender(), row(1, "2")
    sender = sending(broker)
    sender.send([one])
    broker.deliver(broker.open[0])
    assert sender.close(0) == Deliveries()
    assert broker.values() == ["1.0"]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_rows_are_reported_once_and_keys_keep_their_order(seed: int):
    chance, broker = random.Random(seed), MemorySender()
    sender = sending(broker)
    waiting: dict[str, list[MarkedRecord]] = {f"k{key}": [] for key in range(5)}
    for number in range(200):
        key = chance.choice(list(waiting))
        waiting[key].append(row(number, chance.choice(["0", "1", "1", "2", "5", "bad"]), key))
    busy: dict[str, MarkedRecord] = {}
    delivered = []
    while busy or any(waiting.values()):
        sent = [
            waiting[key][0] for key in waiting if waiting[key] and key not in busy and chance.random() < 0.5
        ]
        if sent:
            sender.send(sent)
            busy |= {each.key: each for each in sent}
        for each in chance.sample(broker.open, k=len(broker.open)):
            if chance.random() < 0.5:
                (broker.deliver if chance.random() < 0.8 else broker.fail)(each)
        reports = sender.poll(0)
        for each in reports.delivered:
            assert busy.pop(each.key) == each == waiting[each.key].pop(0)
            delivered.append(each)
        for failure in reports.failed:
            assert busy.pop(failure.record.key) == failure.record == waiting[failure.record.key][0]
            if not failure.retryable:
                assert waiting[failure.record.key].pop(0).value == "bad"
    assert_firsts_in_order(broker.log, delivered)


def assert_firsts_in_order(log: Sequence[MarkedRecord], delivered: Sequence[MarkedRecord]) -> None:
    wanted: dict[str, list[str]] = defaultdict(list)
    for each in delivered:
        wanted[each.key] += [f"{each.id}.{part}" for part in range(int(str(each.value)))]
    seen: dict[str, list[str]] = defaultdict(list)
    for each in log:
        if each.value not in seen[each.key]:
            seen[each.key].append(str(each.value))
    assert {key: values for key, values in wanted.items() if values} == seen


class MemoryTransactions:
    """A log whose transactions are committed for one topic and aborted for another if they are torn."""

    location = "here"

    def __init__(self) -> None:
        self.log: list[tuple[str, object]] = []
        self.asked: list[str] = []
        self.last: Attempt | None = None
        self.committed = False
        self.undecided: frozenset[str] = frozenset()
        self.refused: frozenset[str] = frozenset()

    def publish(
        self, records: Sequence[MarkedRecord], checkpoint: str, lost: Sequence[str] = ()
    ) -> list[Failure]:
        assert len({record.id for record in records}) == len(records)
        refused = {record.key: record for record in reversed(records) if record.value in self.refused}
        if refused:
            return [Failure(record, "refused", retryable=False) for record in refused.values()]
        self.last, self.committed = Attempt(checkpoint), "checkpoint" not in lost
        self.log += [(record.topic, record.value) for record in records if record.topic not in lost]
        return []

    def attempt(self, location: str = "") -> Attempt | None:
        self.asked.append(location)
        return self.last

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        there = [
            each.id
            for each in records
            if (each.topic, each.value) in self.log and each.value not in self.undecided
        ]
        doubtful = [each.id for each in records if each.value in self.undecided]
        told = self.committed and bool(doubtful or not records)
        return Found(there, doubtful, told, "who knows" if doubtful else "")

    def close(self) -> None:
        pass


def publishing(broker: MemoryTransactions, chain: Chain = CHAIN) -> TransformingTransactionalSender:
    return TransformingTransactionalSender(broker, chain, permitted)


def test_a_batch_is_published_as_what_is_made_of_it():
    broker = MemoryTransactions()
    assert publishing(broker).publish([row(1, "2"), row(2, "0"), row(3)], "checkpoint") == []
    assert broker.log == [("t0", "1.0"), ("t1", "1.1"), ("t0", "3.0")]
    assert broker.last == Attempt("checkpoint")


def test_a_batch_of_which_nothing_is_made_writes_its_checkpoint():
    broker = MemoryTransactions()
    assert publishing(broker).publish([row(1, "0")], "checkpoint") == []
    assert (broker.log, broker.last) == ([], Attempt("checkpoint"))


def test_of_rows_that_cannot_be_transformed_the_first_of_each_key_is_named_and_nothing_is_sent():
    broker = MemoryTransactions()
    batch = [row(1), row(2, "bad", "a"), row(3, "x", "a"), row(4, "1", "b", "forbidden"), row(5, "bad", "c")]
    failures = publishing(broker).publish(batch, "checkpoint")
    assert [(failure.record, failure.retryable) for failure in failures] == [
        (batch[1], False), (batch[3], False), (batch[4], False),
    ]  # fmt: skip
    assert broker.last is None


def test_what_the_broker_refuses_is_blamed_on_its_row():
    broker, batch = MemoryTransactions(), [row(1, "3"), row(2, "3", "other")]
    broker.refused = frozenset({"2.1"})
    assert publishing(broker).publish(batch, "checkpoint") == [Failure(batch[1], "refused", retryable=False)]


def test_rows_are_found_of_which_everything_is_in_the_log():
    broker, batch = MemoryTransactions(), [row(1, "2"), row(2, "0"), row(3, "1"), row(5, "1", topic="u")]
    broker.publish(
        [
            MarkedRecord(0, "t0", "k", "1.0"),
            MarkedRecord(1, "t1", "k", "1.1"),
            MarkedRecord(2, "t0", "k", "3.0"),
        ],
        "c",
    )
    assert publishing(broker).find(batch[:3], "") == Found([1, 2, 3], [])
    found = publishing(broker).find([*batch, row(7, "bad")], "")
    assert found == Found([1, 3], []), "a transaction that is aborted does not seem to be torn"
    assert publishing(broker).find([row(2, "0")], "").published == [2]


def test_a_row_that_is_torn_is_not_published():
    broker, batch = MemoryTransactions(), [row(1, "2"), row(2, "1")]
    messages = [
        MarkedRecord(0, "t0", "k", "1.0"),
        MarkedRecord(1, "t1", "k", "1.1"),
        MarkedRecord(2, "t0", "k", "2.0"),
    ]
    broker.publish(messages, "c", lost=["t1"])
    assert publishing(broker).find(batch, "") == Found([2], [])


def test_a_row_is_undecided_if_the_rest_of_it_is_in_the_log():
    broker, batch = MemoryTransactions(), [row(1, "2"), row(2, "2")]
    broker.publish([MarkedRecord(0, "t0", "k", "1.0")], "c")
    broker.undecided = frozenset({"1.1", "2.0"})
    assert publishing(broker).find(batch, "") == Found([], [1], True, "who knows")


def test_the_place_of_a_checkpoint_names_the_transforms_and_the_broker_is_not_told():
    broker = MemoryTransactions()
    sender = publishing(broker)
    assert publishing(broker, NOBODY).location == "here"
    assert sender.location.startswith("here")
    assert sender.location != "here"
    sender.attempt(sender.location)
    sender.attempt("there")
    sender.attempt()
    assert broker.asked == ["here", "there", ""]


@pytest.mark.parametrize(
    ("former", "present"),
    [(CHAIN, NOBODY), (NOBODY, CHAIN), (CHAIN, Chain([("multiplies", Multiplies())], "other"))],
)
@pytest.mark.parametrize("committed", [False, True])
def test_of_rows_that_were_transformed_otherwise_nothing_is_known_but_the_checkpoints_fate(
    former: Chain, present: Chain, committed: bool
):
    broker, batch = MemoryTransactions(), [row(1, "2"), row(2)]
    publishing(broker, former).publish(batch, "checkpoint")
    broker.committed = committed
    successor = publishing(broker, present)
    assert successor.attempt(publishing(broker, former).location) == Attempt("checkpoint")
    assert successor.find(batch, "") == Found((), [1, 2], committed, "its transforms were others than now")
    again = publishing(broker, former)
    again.attempt(again.location)
    assert again.find(batch, "").published == [1, 2]


def test_without_transforms_all_is_passed_on_as_it_is():
    broker, batch = MemoryTransactions(), [row(1), row(2, "bad")]
    sender = publishing(broker, NOBODY)
    assert sender.publish(batch, "checkpoint") == []
    assert broker.log == [("t", "1"), ("t", "bad")]
    assert sender.find(batch, "").published == [1, 2]


def test_without_transforms_no_row_is_torn_as_no_checkpoint_says_so():
    sender = publishing(MemoryTransactions(), NOBODY)
    sender.torn.add("trace", [1])
    assert sender.publish([], "checkpoint") == []
    assert not sender.torn
