"""The state machine of leadership, without Kafka."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from outbox_api.election.leadership import Leadership, LeadershipEvent, RefusalTimeout

TERM = 5.0
ACQUIRED, REVOKED, FENCED = LeadershipEvent.ACQUIRED, LeadershipEvent.REVOKED, LeadershipEvent.FENCED


def leading(at: float = 0.0) -> Leadership:
    leadership = Leadership(TERM)
    assert leadership.assigned(at) == []
    assert leadership.confirmed(1, at, at) == [ACQUIRED]
    return leadership


def test_assignment_counts_once_it_is_confirmed() -> None:
    leadership = Leadership(TERM)
    assert leadership.assigned(10) == []
    assert leadership.lease(10) <= 0
    assert leadership.confirmed(1, 10, 11) == [ACQUIRED]
    assert leadership.lease(11) == TERM - 1  # from when it was sent


def test_confirmation_prolongs_the_lease() -> None:
    leadership = leading()
    assert leadership.confirmed(1, 3, 4) == []
    assert leadership.tick(7.9) == []
    assert leadership.tick(8) == [FENCED]
    assert leadership.lease(8) <= 0


def test_older_confirmation_does_not_shorten_the_lease() -> None:
    leadership = leading()
    leadership.confirmed(1, 3, 4)
    leadership.confirmed(1, 2, 4)
    assert leadership.lease(4) == 4


def test_confirmation_after_the_end_acquires_again() -> None:
    leadership = leading()
    assert leadership.tick(6) == [FENCED]
    assert leadership.tick(7) == []
    assert leadership.confirmed(1, 7, 7.5) == [ACQUIRED]


def test_confirmation_that_comes_too_late_is_worth_nothing() -> None:
    leadership = leading()
    # The process was frozen: the confirmation that it finds on waking had been sent before.
    assert leadership.confirmed(1, 1, 20) == [FENCED]
    assert leadership.lease(20) <= 0


def test_end_of_the_lease_is_told_before_its_renewal() -> None:
    leadership = leading()
    assert leadership.confirmed(1, 4.9, 5.1) == [FENCED, ACQUIRED]


def test_lost() -> None:
    leadership = leading()
    assert leadership.lost(1) == [FENCED]
    assert leadership.lease(1) <= 0
    assert leadership.lost(1) == []
    assert leadership.confirmed(1, 1, 1) == []


def test_confirmation_of_an_earlier_assignment_does_not_count() -> None:
    leadership = leading()
    leadership.lost(1)
    assert leadership.assigned(2) == []
    assert leadership.confirmed(1, 1, 2) == []
    assert leadership.lease(2) <= 0
    assert leadership.confirmed(2, 2, 2) == [ACQUIRED]


def test_handover_keeps_the_lease_until_it_ends() -> None:
    leadership = leading()
    assert leadership.revoked(1) == [REVOKED]
    assert leadership.lease(1) == TERM - 1
    assert leadership.confirmed(1, 1, 1) == []
    leadership.ended()
    assert leadership.lease(1) <= 0


def test_handover_after_the_lease_is_no_handover() -> None:
    assert leading().revoked(6) == [FENCED]


def test_standby_is_told_nothing() -> None:
    leadership = Leadership(TERM)
    assert leadership.tick(1) == []
    assert leadership.revoked(2) == []
    assert leadership.lost(3) == []
    assert leadership.confirmed(0, 3, 3) == []


class Any(RuleBasedStateMachine):
    """Events in any order at any times."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.leadership = Leadership(TERM)
        self.sent: list[tuple[int, float]] = []
        self.told: list[LeadershipEvent] = []
        self.worth = float("-inf")

    @rule(seconds=st.floats(0, 3 * TERM))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def tick(self) -> None:
        self.told += self.leadership.tick(self.now)

    @rule()
    def assign(self) -> None:
        self.told += self.leadership.assigned(self.now)

    @rule()
    def ask(self) -> None:
        self.sent.append((self.leadership.assignment, self.now))

    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        if self.sent:
            assignment, sent_at = self.sent.pop(data.draw(st.integers(0, len(self.sent) - 1)))
            self.told += self.leadership.confirmed(assignment, sent_at, self.now)
            if self.leadership.owns and assignment == self.leadership.assignment:
                self.worth = max(self.worth, sent_at + TERM)

    @rule()
    def revoke(self) -> None:
        self.told += self.leadership.revoked(self.now)
        self.leadership.ended()

    @rule()
    def lose(self) -> None:
        self.told += self.leadership.lost(self.now)

    @invariant()
    def acquired_and_given_up_take_turns(self) -> None:
        assert self.told[::2] == [ACQUIRED] * len(self.told[::2])
        assert ACQUIRED not in self.told[1::2]
        assert self.leadership.leads == (len(self.told) % 2 == 1)

    @invariant()
    def lease_is_worth_no_more_than_the_last_confirmation(self) -> None:
        assert self.leadership.lease(self.now) <= max(0.0, self.worth - self.now)

    @invariant()
    def lease_is_for_leaders_only(self) -> None:
        if not self.leadership.leads:
            assert self.leadership.lease(self.now) <= 0


TestAny = Any.TestCase
TestAny.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


@given(st.lists(st.floats(0, 2 * TERM), min_size=1, max_size=20))
def test_lease_never_outlives_the_session_of_a_rival(pauses: list[float]) -> None:
    """When the group elects another leader, the former leader's lease has expired, whatever the pauses."""
    session = TERM / 0.6
    leadership = leading()
    now = last = 0.0
    for pause in pauses:
        now += pause
        leadership.tick(now)
        if now - last >= session:
            assert leadership.lease(now) <= 0
            return
        leadership.confirmed(1, now, now)
        last = now


def test_refusal_is_borne_for_a_while() -> None:
    refusal = RefusalTimeout(60)
    assert not refusal.has_expired(1000)
    refusal.refused(10)
    refusal.refused(40)  # still the same
    assert refusal.is_running
    assert not refusal.has_expired(69.9)
    assert refusal.has_expired(70)


def test_permission_between_two_refusals_ends_the_first() -> None:
    refusal = RefusalTimeout(60)
    refusal.refused(10)
    refusal.permitted()
    assert not refusal.is_running
    refusal.refused(50)
    assert not refusal.has_expired(109)
    assert refusal.has_expired(110)
