"""The lease: one holder at a time, by the database's clock, with a number for each new holder."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from outbox_sdk import Lease

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.crowd import PATIENCE
from outbox_testkit.conformance.under_test import Box


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

    def test_of_many_that_want_it_one_has_it(self, box: Box, stack: ExitStack) -> None:
        leases = [self.lease(box, stack) for _ in range(4)]
        with ThreadPoolExecutor(len(leases)) as pool:
            for _ in range(3):
                taken = list(pool.map(lambda number: leases[number].take(f"p{number}", 60), range(4)))
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
