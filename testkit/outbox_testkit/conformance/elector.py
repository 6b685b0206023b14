"""What every elector must do: one leads, a hand-over is orderly, a dead or frozen leader is replaced.

Bounds of time are generous, as machines of tests are busy; what was measured is recorded in the report.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from outbox_sdk import Finding, Level
from outbox_sdk.election import elapsed

from outbox_testkit.conformance.contender import ElectorUnderTest
from outbox_testkit.conformance.election import Election

_SLACK = 5.0
"""Seconds that a busy machine may take longer."""


class Recording:
    """A candidate within the tests' own process."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self._changed = threading.Condition()

    def acquired(self) -> None:
        """Records it."""
        self._add("acquired")

    def revoked(self) -> None:
        """Records it."""
        self._add("revoked")

    def fenced(self) -> None:
        """Records it."""
        self._add("fenced")

    def failed(self, error: Exception) -> None:
        """Records the reason."""
        self._add(f"failed {error}")

    def wait(self, story: list[str], timeout: float = 60.0) -> None:
        """Waits until exactly these events were told."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.story == story, timeout), self.story

    def _add(self, what: str) -> None:
        with self._changed:
            self.story.append(what)
            self._changed.notify_all()


class ElectorConformance:
    """The suite. The plugin's subclass provides the fixture ``elector``, an :class:`ElectorUnderTest`."""

    @pytest.fixture
    def election(self, elector: ElectorUnderTest) -> Iterator[Election]:
        """The election, with processes; at its end all that they told must have been in order."""
        election = Election(elector)
        yield election
        election.close()

    @pytest.fixture
    def measured(self, record_property: Callable[[str, object], None]) -> Callable[[str, float], None]:
        """Records a measured time in the report."""

        def note(what: str, seconds: float) -> None:
            record_property(what, seconds)
            print(f"\n{what}: {seconds:.2f} s")  # noqa: T201 - for whoever measures

        return note

    def test_a_sole_candidate_leads_and_leaves_nothing_behind(self, elector: ElectorUnderTest) -> None:
        before = set(threading.enumerate())
        one, candidate = elector.create(), Recording()
        assert one.lease() == 0
        one.stop()
        one = elector.create()
        one.start(candidate)
        candidate.wait(["acquired"])
        leases = []
        for _ in range(20):
            leases.append(one.lease())
            time.sleep(elector.session / 20)
        assert min(leases) > 0
        assert max(leases) <= elector.session
        one.stop()
        one.stop()
        assert candidate.story == ["acquired", "revoked"]
        assert one.lease() == 0
        assert set(threading.enumerate()) <= before

    def test_it_finds_nothing_wrong(self, elector: ElectorUnderTest) -> None:
        findings: list[Finding] = list(elector.create().check())
        assert findings
        assert [finding for finding in findings if finding.level is Level.ERROR] == []

    def test_leadership_passes_through_ten_candidates(
        self, elector: ElectorUnderTest, measured: Callable[[str, float], None]
    ) -> None:
        standing = {elector.create(): Recording() for _ in range(10)}
        for each, candidate in standing.items():
            each.start(candidate)
        longest = 0.0
        while standing:
            deadline = elapsed() + 60
            while not (leading := [each for each in standing if standing[each].story]):
                assert elapsed() < deadline, "nobody leads"
                time.sleep(0.005)
            [leader] = leading
            asked = elapsed()
            leader.stop()
            assert standing.pop(leader).story == ["acquired", "revoked"]
            while standing and not any(candidate.story for candidate in standing.values()):
                assert elapsed() < deadline + 60, "nobody leads"
                time.sleep(0.005)
            longest = max(longest, elapsed() - asked)
        measured("longest of nine hand-overs", longest)

    def test_nobody_leads_while_the_leader_drains(
        self, election: Election, measured: Callable[[str, float], None]
    ) -> None:
        election.enter(2, drain=election.session / 2)
        leader = election.hear("acquired", 60).contender
        leader.stop()
        drained = election.hear("revoked", 30, leader)
        successor = election.hear("acquired", 30)
        measured("hand-over", successor.at - drained.at)
        election.assert_orderly()

    def test_who_comes_and_goes_does_not_disturb_the_leader(self, election: Election) -> None:
        election.enter()
        leader = election.hear("acquired", 60).contender
        first, second = election.enter(2)
        assert election.hear_all(1.0) == []
        first.kill()
        second.stop()
        assert election.hear_all(1.5 * election.session) == []
        assert leader.process.poll() is None

    def test_a_killed_leader_is_replaced_whoever_joins_meanwhile(
        self, election: Election, measured: Callable[[str, float], None]
    ) -> None:
        election.enter(2)
        leader = election.hear("acquired", 60).contender
        died = leader.kill()
        time.sleep(election.session / 3)
        election.enter()
        successor = election.hear("acquired", 3 * election.session + _SLACK)
        measured("takeover of a killed leader, with a replacement", successor.at - died)
        election.hear_all(1.0)
        election.assert_orderly()

    def test_a_leader_that_was_frozen_briefly_leads_on(self, election: Election) -> None:
        election.enter(2)
        leader = election.hear("acquired", 60).contender
        leader.process.send_signal(signal.SIGSTOP)
        time.sleep(election.session / 4)
        leader.process.send_signal(signal.SIGCONT)
        assert election.hear_all(1.5 * election.session) == []

    def test_a_leader_that_was_frozen_for_long_stands_by(
        self, election: Election, measured: Callable[[str, float], None]
    ) -> None:
        election.enter(2)
        leader = election.hear("acquired", 60).contender
        frozen = elapsed()
        leader.process.send_signal(signal.SIGSTOP)
        successor = election.hear("acquired", 2 * election.session + _SLACK)
        assert successor.contender is not leader
        measured("takeover of a frozen leader", successor.at - frozen)
        time.sleep(max(0.0, 2 * election.session - (elapsed() - frozen)))
        woken = elapsed()
        leader.process.send_signal(signal.SIGCONT)
        fenced = election.hear("fenced", 30, leader)
        measured("a frozen leader notices", fenced.at - woken)
        assert election.hear_all(1.0) == []
        successor.contender.stop()
        assert election.hear("acquired", 30).contender is leader
