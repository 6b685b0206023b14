"""The audit of perfect deliveries, of deliveries with one defect, and compared with a naive model."""

from collections import defaultdict
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outbox_audit import Audit, Defect, Result

Record = tuple[str, int]

PER_KEY = st.dictionaries(st.sampled_from("abc"), st.sets(st.integers(0, 12), min_size=2), min_size=1)


def judge(committed: Iterable[Record], arrived: Iterable[tuple[str, int | None]]) -> Result:
    audit = Audit()
    for record in committed:
        audit.committed(*record)
    for message in arrived:
        audit.arrived(*message)
    return audit.result()


def records(per_key: dict[str, set[int]]) -> list[Record]:
    return [(key, number) for key, numbers in per_key.items() for number in sorted(numbers)]


def woven(per_key: dict[str, set[int]], random: Random, most: int = 3) -> list[Record]:
    """A good delivery: keys in random order, records of a key in order, each up to ``most`` times."""
    tails = {
        key: [n for n in sorted(numbers) for _ in range(random.randint(1, most))]
        for key, numbers in per_key.items()
    }
    delivery = []
    while tails:
        key = random.choice(sorted(tails))
        delivery.append((key, tails[key].pop(0)))
        if not tails[key]:
            del tails[key]
    return delivery


@given(PER_KEY, st.randoms(use_true_random=False))
def test_a_faultless_delivery_is_good(per_key: dict[str, set[int]], random: Random) -> None:
    sent, delivery = records(per_key), woven(per_key, random)
    random.shuffle(sent)
    result = judge(sent, delivery)
    assert result.good
    assert (result.sent, result.delivered) == (len(sent), len(sent))
    assert (result.lost, result.foreign, result.out_of_order) == (0, 0, 0)
    assert result.repeated == len(delivery) - len(sent)
    again = {record for record in delivery if delivery.count(record) > 1}
    assert result.duplicates == len(again)
    assert result.exactly_once is (not again)
    assert set(result.examples[Defect.DUPLICATES]) <= again


@given(PER_KEY, st.randoms(use_true_random=False), st.data())
def test_a_lost_record_is_found(per_key: dict[str, set[int]], random: Random, data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(records(per_key)))
    result = judge(records(per_key), [record for record in woven(per_key, random) if record != lost])
    assert not result.good
    assert (result.lost, result.foreign, result.out_of_order) == (1, 0, 0)
    assert result.examples[Defect.LOST] == (lost,)


@given(PER_KEY, st.randoms(use_true_random=False), st.data())
def test_a_foreign_record_is_found(per_key: dict[str, set[int]], random: Random, data: st.DataObject) -> None:
    delivery: list[tuple[str, int | None]] = [*woven(per_key, random)]
    foreign: tuple[str, int | None] = data.draw(
        st.tuples(st.sampled_from("abcx"), st.one_of(st.integers(-2, 14), st.none())).filter(
            lambda record: record not in records(per_key)
        )
    )
    delivery.insert(data.draw(st.integers(0, len(delivery))), foreign)
    result = judge(records(per_key), delivery)
    assert not result.good
    assert (result.lost, result.foreign, result.out_of_order) == (0, 1, 0)
    assert result.examples[Defect.FOREIGN] == (foreign,)


@given(PER_KEY, st.randoms(use_true_random=False), st.data())
def test_two_exchanged_records_are_found(
    per_key: dict[str, set[int]], random: Random, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(per_key)))
    numbers = sorted(per_key[key])
    place = data.draw(st.integers(0, len(numbers) - 2))
    early, late = numbers[place], numbers[place + 1]
    exchange = {(key, early): (key, late), (key, late): (key, early)}
    delivery = [exchange.get(record, record) for record in woven(per_key, random, most=1)]
    result = judge(records(per_key), delivery)
    assert not result.good
    assert (result.lost, result.foreign, result.overtaken, result.reappeared) == (0, 0, 1, 0)
    assert result.examples[Defect.OVERTAKEN] == ((key, early),)


@given(PER_KEY, st.randoms(use_true_random=False), st.data())
def test_a_repetition_behind_a_successor_is_found(
    per_key: dict[str, set[int]], random: Random, data: st.DataObject
) -> None:
    delivery = woven(per_key, random)
    key = data.draw(st.sampled_from(sorted(per_key)))
    again = (key, data.draw(st.sampled_from(sorted(per_key[key])[:-1])))
    behind = max(place for place, record in enumerate(delivery) if record[0] == key and record[1] > again[1])
    delivery.insert(data.draw(st.integers(behind + 1, len(delivery))), again)
    result = judge(records(per_key), delivery)
    assert not result.good
    assert (result.lost, result.foreign, result.overtaken, result.stale) == (0, 0, 0, 1)
    assert result.examples[Defect.STALE] == (again,)


def naive(per_key: dict[str, set[int]], delivery: list[Record]) -> tuple[int, ...]:
    """A naive audit by definition, which stores everything."""
    seen: dict[str, list[int]] = defaultdict(list)
    foreign = overtaken = reappeared = repeated = 0
    for key, number in delivery:
        if number not in per_key.get(key, ()):
            foreign += 1
            continue
        behind = any(earlier > number for earlier in seen[key])
        again = number in seen[key]
        repeated += again
        overtaken += behind and not again
        reappeared += behind and again
        seen[key].append(number)
    delivered = sum(len(set(numbers)) for numbers in seen.values())
    stale = 0
    for numbers in seen.values():
        last = {number: place for place, number in enumerate(numbers)}
        first = {number: numbers.index(number) for number in numbers}
        stale += sum(
            last[number] != first[number]
            and any(other > number and last[other] < last[number] for other in last)
            for number in last
        )
    return delivered, foreign, overtaken, reappeared, repeated, stale


@given(PER_KEY, st.lists(st.tuples(st.sampled_from("abcx"), st.integers(-1, 13)), max_size=60))
def test_agrees_with_the_definition_on_any_delivery(
    per_key: dict[str, set[int]], delivery: list[Record]
) -> None:
    result = judge(records(per_key), delivery)
    arrived = (result.delivered, result.foreign, result.overtaken)
    found = (*arrived, result.reappeared, result.repeated, result.stale)
    assert found == naive(per_key, delivery)
    assert result.duplicates == len(
        {each for each in delivery if delivery.count(each) > 1} & set(records(per_key))
    )
    assert result.lost == len(records(per_key)) - result.delivered


def test_a_result_in_between_changes_nothing() -> None:
    audit = Audit()
    audit.committed("a", 1)
    assert audit.result().lost == 1
    audit.committed("a", 2)
    audit.arrived("a", 2)
    assert audit.result().lost == 1
    audit.arrived("a", 1)
    assert (audit.result().lost, audit.result().overtaken) == (0, 1)


def test_sending_nothing_is_no_proof() -> None:
    assert not judge([], []).good
    assert "nothing to audit" in judge([], []).summary()


def test_committing_twice_is_refused() -> None:
    audit = Audit()
    audit.committed("a", 1)
    with pytest.raises(ValueError, match="committed twice"):
        audit.committed("a", 1)


def test_committing_behind_a_message_is_refused() -> None:
    audit = Audit()
    audit.arrived("a", 1)
    with pytest.raises(ValueError, match="before the first message"):
        audit.committed("a", 1)


def test_a_good_verdict_is_one_sentence() -> None:
    sent = [("a", number) for number in range(1200)]
    assert (
        judge(sent, sent).summary()
        == "All 1,200 records arrived, in order for every key, and nothing else did."
    )
    assert judge(sent, [sent[0], *sent]).summary().endswith(" 1 message repeated an earlier one.")


def test_a_bad_verdict_names_each_defect() -> None:
    sent = [("a", number) for number in range(10)]
    lines = judge(sent, [("a", 9), ("a", 8), ("a", 8), ("b", None)]).summary().splitlines()
    assert lines == [
        "8 of 10 committed records never arrived: 'a' 0, 'a' 1, 'a' 2, 'a' 3, 'a' 4, and 3 more.",
        "1 arrived without being committed: 'b' without a number.",
        "1 arrived behind a later record of the same key: 'a' 8.",
        "1 arrived again behind a later record of the same key that did not follow again: 'a' 8.",
    ]


def test_duplicates_are_a_defect_where_delivery_is_to_be_exactly_once() -> None:
    sent = [("a", number) for number in range(3)]
    once, again = judge(sent, sent), judge(sent, [sent[0], sent[0], *sent])
    assert (once.exactly_once, again.good, again.exactly_once) == (True, True, False)
    assert (again.repeated, again.duplicates) == (2, 1)
    assert (
        once.summary(exactly_once=True)
        == "All 3 records arrived exactly once, in order for every key, and nothing else did."
    )
    assert again.summary(exactly_once=True) == "1 arrived more than once: 'a' 0."
    lost = judge(sent, [sent[0], sent[0]]).summary(exactly_once=True)
    assert [line.partition(" ")[0] for line in lost.splitlines()] == ["2", "1"]


def test_memory_is_kept_by_gaps_not_by_records() -> None:
    audit = Audit()
    for number in range(10_000):
        if number != 5000:
            audit.committed("a", number)
    for number in range(10_000):
        if number != 5000:
            audit.arrived("a", number)
    assert audit.result().good
    state = audit._keys["a"]
    assert len(state.committed._firsts) == 2
    assert len(state.arrived._firsts) == 1


@pytest.mark.parametrize("times", [(1, 1), (2, 1)], ids=["all again behind the last", "each again at once"])
def test_what_is_repeated_in_order_takes_no_memory(times: tuple[int, int]) -> None:
    audit, order = Audit(), [("a", number) for number in range(10_000)]
    for record in order:
        audit.committed(*record)
    for count in times:
        for record in order:
            for _ in range(count):
                audit.arrived(*record)
    assert audit.result().good
    assert audit.result().repeated >= len(order)
    assert len(audit._keys["a"].repeats) <= 2


def test_what_is_stale_is_counted_for_each_key() -> None:
    committed = [(key, number) for key in "abcdefg" for number in range(3)]
    late = {"a": 1, "c": 2, "d": 2, "e": 1, "f": 1, "g": 1}
    arrived = [*committed, *((key, 0) for key, times in late.items() for _ in range(times)), ("b", 2)]
    result = judge(committed, arrived)
    assert result.reappeared == 8
    assert result.repeated == 9
    assert result.stale == 6
    assert result.most_stale == (("a", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1))


def test_what_is_followed_again_is_not_stale() -> None:
    committed = [("a", number) for number in range(5)]
    again = [("a", number) for number in (1, 2, 1, 2, 3, 4)]
    assert judge(committed, [*committed, *again]).good
    assert judge(committed, [*committed, *again[:-1]]).stale == 3
    result = judge(committed, [*committed, ("a", 3), ("a", 4), ("a", 1)])
    assert result.examples[Defect.STALE] == (("a", 1),)
