"""How long a lease has looked the same, by a clock of one's own."""

from __future__ import annotations

from outbox_api.election import LeaseWatch


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_runs_out_when_the_same_renewal_was_seen_for_its_length() -> None:
    clock = Clock()
    watch = LeaseWatch(clock)
    assert watch.left(("a", 1), 10) == 10
    clock.now += 9
    assert watch.left(("a", 1), 10) == 1
    clock.now += 1
    assert watch.left(("a", 1), 10) == 0


def test_each_renewal_and_each_holder_begins_anew() -> None:
    clock = Clock()
    watch = LeaseWatch(clock)
    for state in (("a", 1), ("a", 2), ("a", 1), ("b", 1)):
        assert watch.left(state, 10) == 10
        clock.now += 9
