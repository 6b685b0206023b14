"""The base class of the suite for electors: the election, and what is measured of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from outbox_testkit.conformance.base import NOT_DECLARED
from outbox_testkit.conformance.contender import ElectorUnderTest, ServiceUnderTest
from outbox_testkit.conformance.election import Election

Measure = Callable[[str, float], None]
"""Records in the report what was measured, and its seconds."""


class ElectorSuite:
    """A theme. The plugin's subclass provides the fixture ``elector``, an :class:`ElectorUnderTest`."""

    @pytest.fixture
    def contest(self, elector: ElectorUnderTest) -> ElectorUnderTest:
        """The elector, of which one candidate leads at a time."""
        if not elector.elects:
            pytest.skip(f"{NOT_DECLARED}one leader at a time")
        return elector

    @pytest.fixture
    def service(self, contest: ElectorUnderTest) -> ServiceUnderTest:
        """The service behind the elector, which the test may disturb."""
        if contest.service is None:
            pytest.skip(f"{NOT_DECLARED}a service that tests may disturb")
        return contest.service

    @pytest.fixture
    def election(self, contest: ElectorUnderTest) -> Iterator[Election]:
        """The election, with processes; at its end all that they told must have been in order."""
        election = Election(contest)
        try:
            yield election
            election.assert_orderly()
        finally:
            election.close()

    @pytest.fixture
    def measured(self, record_testsuite_property: Callable[[str, object], None]) -> Measure:
        """Records a measured time in the report."""

        def note(what: str, seconds: float) -> None:
            record_testsuite_property(f"{type(self).__name__}: {what}", f"{seconds:.2f} s")
            print(f"\n{what}: {seconds:.2f} s")  # noqa: T201 - for whoever measures

        return note
