from hypothesis import given
from hypothesis import strategies as st
from outbox_core.audit.runs import Runs

NUMBERS = st.lists(st.integers(-5, 60))


def filled(numbers: list[int]) -> Runs:
    runs = Runs()
    for number in numbers:
        runs.add(number)
    return runs


@given(NUMBERS)
def test_is_a_set(numbers: list[int]) -> None:
    runs, known = Runs(), set()
    for number in numbers:
        assert runs.add(number) is (number not in known)
        known.add(number)
        assert len(runs) == len(known)
    assert [number for number in range(-10, 70) if number in runs] == sorted(known)


@given(NUMBERS)
def test_ranks_and_members_are_each_others_inverse(numbers: list[int]) -> None:
    runs = filled(numbers)
    members = sorted(set(numbers))
    assert [runs.rank(number) for number in members] == list(range(len(members)))
    assert [runs.member(rank) for rank in range(len(members))] == members
    for number in set(range(-10, 70)) - set(members):
        assert runs.rank(number) is None
    for rank in (-1, len(members)):
        try:
            runs.member(rank)
        except IndexError:
            continue
        raise AssertionError(rank)


@given(NUMBERS, st.integers(0, 70))
def test_absent_numbers(numbers: list[int], stop: int) -> None:
    assert list(filled(numbers).absent(stop)) == [n for n in range(stop) if n not in numbers]


def test_ranks_follow_later_additions() -> None:
    runs = filled([5, 6])
    assert runs.rank(6) == 1
    runs.add(1)
    assert runs.rank(6) == 2


def test_room_depends_on_gaps_only() -> None:
    runs = filled([*range(0, 1000, 2), *range(999, 0, -2)])
    assert len(runs) == 1000
    assert len(runs._firsts) == len(runs._stops) == 1
