from hypothesis import given
from hypothesis import strategies as st
from outbox_audit.audit import RangeSet

NUMBERS = st.lists(st.integers(-5, 60))


def filled(numbers: list[int]) -> RangeSet:
    ranges = RangeSet()
    for number in numbers:
        ranges.add(number)
    return ranges


@given(NUMBERS)
def test_is_a_set(numbers: list[int]) -> None:
    ranges, known = RangeSet(), set()
    for number in numbers:
        assert ranges.add(number) is (number not in known)
        known.add(number)
        assert len(ranges) == len(known)
    assert [number for number in range(-10, 70) if number in ranges] == sorted(known)


@given(NUMBERS)
def test_ranks_and_members_are_each_others_inverse(numbers: list[int]) -> None:
    ranges = filled(numbers)
    members = sorted(set(numbers))
    assert [ranges.rank(number) for number in members] == list(range(len(members)))
    assert [ranges.member(rank) for rank in range(len(members))] == members
    for number in set(range(-10, 70)) - set(members):
        assert ranges.rank(number) is None
    for rank in (-1, len(members)):
        try:
            ranges.member(rank)
        except IndexError:
            continue
        raise AssertionError(rank)


@given(NUMBERS, st.integers(0, 70))
def test_absent_numbers(numbers: list[int], stop: int) -> None:
    assert list(filled(numbers).absent(stop)) == [n for n in range(stop) if n not in numbers]


def test_ranks_follow_later_additions() -> None:
    ranges = filled([5, 6])
    assert ranges.rank(6) == 1
    ranges.add(1)
    assert ranges.rank(6) == 2


def test_room_depends_on_gaps_only() -> None:
    ranges = filled([*range(0, 1000, 2), *range(999, 0, -2)])
    assert len(ranges) == 1000
    assert len(ranges._firsts) == len(ranges._stops) == 1
