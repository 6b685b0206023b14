"""The lease: one holder at a time, whatever the database's clock does, with a number for each new holder."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from outbox_api import Lease

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.crowd import PATIENCE, persist
from outbox_testkit.conformance.under_test import Box

SESSION = 1.0


class LeaseConformance(Conformance):
    """Acquiring, renewing, expiry and release."""

    @staticmethod
    def lease(box: Box, stack: ExitStack) -> Lease:
        """Connects to the lease."""
        lease = box.dialect.lease()
        stack.callback(lease.close)
        return lease

    def test_a_lease_is_one_holders_until_it_runs_out(self, box: Box, stack: ExitStack) -> None:
        one, other = self.lease(box, stack), self.lease(box, stack)
        term = one.take("one", 60)
        assert term is not None
        assert other.take("other", 60) is None
        shortened = time.monotonic()
        assert one.take("one", 2.0) == term
        deadline = time.monotonic() + PATIENCE
        while (following := other.take("other", 60)) is None:
            assert time.monotonic() < deadline, "it does not run out"
            time.sleep(0.1)
        assert time.monotonic() - shortened > 1, "a shorter lease is one holder's, too"
        assert following > term
        assert one.take("one", 60) is None

    def test_a_released_lease_is_free_and_only_the_holder_releases_it(
        self, box: Box, stack: ExitStack
    ) -> None:
        one, other = self.lease(box, stack), self.lease(box, stack)
        term = one.take("one", 60)
        other.release("other")
        assert other.take("other", 60) is None
        one.release("one")
        one.release("one")
        following = other.take("other", 60)
        assert term is not None
        assert following is not None
        assert following > term

    def test_a_clock_that_went_back_keeps_a_dead_holder_for_no_longer_than_a_session(
        self, box: Box, stack: ExitStack
    ) -> None:
        one, other = self.lease(box, stack), self.lease(box, stack)
        term = one.take("one", SESSION)
        box.turn_clock_back()
        following, watched = self.await_lease(other)
        assert term is not None
        assert following > term
        assert watched >= SESSION
        assert one.take("one", SESSION) is None

    def test_who_renews_keeps_it_whatever_the_clock_does(self, box: Box, stack: ExitStack) -> None:
        one, other = self.lease(box, stack), self.lease(box, stack)
        term = one.take("one", 60)
        began = time.monotonic()
        while time.monotonic() - began < 2.5 * SESSION:
            box.turn_clock_back()
            assert other.take("other", SESSION) is None
            assert one.take("one", 60) == term
            time.sleep(SESSION / 10)

    @staticmethod
    def await_lease(lease: Lease) -> tuple[int, float]:
        """Takes the lease once it can be had; returns its number, and for how long it could not."""
        began = time.monotonic()
        while (number := lease.take("other", SESSION)) is None:
            assert time.monotonic() - began < PATIENCE, "it does not run out"
            time.sleep(0.05)
        return number, time.monotonic() - began

    def test_of_many_that_want_it_one_has_it(self, box: Box, stack: ExitStack) -> None:
        leases = [self.lease(box, stack) for _ in range(4)]

        def take(number: int) -> int | None:
            return persist(lambda: leases[number].take(f"p{number}", 60))

        with ThreadPoolExecutor(len(leases)) as pool:
            for _ in range(3):
                taken = list(
                    pool.map(lambda number: persist(lambda: leases[number].take(f"p{number}", 60)), range(4))
                )
                assert sum(term is not None for term in taken) == 1, taken
                [holder] = [number for number, term in enumerate(taken) if term is not None]
                leases[holder].release(f"p{holder}")

    def test_it_is_no_lane_of_the_fence(self, box: Box, stack: ExitStack) -> None:
        lease = self.lease(box, stack)
        term = lease.take("one", 60)
        hand = box.lead()
        assert [lane_status.fence.lane for lane_status in hand.table.lane_statuses()] == [0]
        assert 0 < hand.fence.token <= 1 << 24
        assert lease.take("one", 60) == term
        assert self.lease(box, stack).take("other", 60) is None
