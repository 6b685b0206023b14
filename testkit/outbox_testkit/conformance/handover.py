"""What electors do while nothing fails: one candidate leads, and hands over in order."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from outbox_api import Elector, Finding, Level

from outbox_testkit.conformance.contender import ElectorUnderTest
from outbox_testkit.conformance.electing import ElectorSuite, Measure
from outbox_testkit.conformance.election import Election
from outbox_testkit.conformance.recording import RecordingCandidate

_CANDIDATES = 10
_HOUR = 3600.0
_CLOSE_SECONDS = 60.0
"""A client may end its threads, and close its connections, a moment after it has returned."""
_DRAIN_SECONDS = 2.0
"""Longer than any standby takes to notice that nobody leads."""


class HandOverConformance(ElectorSuite):
    """Candidates come, lead, and go."""

    def test_a_sole_candidate_leads_and_leaves_nothing_behind(self, elector: ElectorUnderTest) -> None:
        before = set(threading.enumerate())
        one, candidate = elector.create(), RecordingCandidate()
        assert one.lease() == 0
        one.stop()
        one = elector.create()
        one.start(candidate)
        candidate.wait(["acquired"])
        leases = []
        for _ in range(20):
            leases.append(one.lease())
            time.sleep(min(elector.session, 1) / 20)
        assert min(leases) > 0
        assert max(leases) <= elector.session
        one.stop()
        one.stop()
        assert candidate.story == ["acquired", "revoked"]
        assert one.lease() == 0
        _await(lambda: set(threading.enumerate()) <= before, lambda: _left(before))

    def test_it_finds_nothing_wrong(self, elector: ElectorUnderTest) -> None:
        findings: list[Finding] = list(elector.create().check())
        assert findings
        assert [finding for finding in findings if finding.level is Level.ERROR] == []

    def test_a_step_of_the_wall_clock_changes_nothing(
        self, elector: ElectorUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, candidate, now = elector.create(), RecordingCandidate(), time.time
        one.start(candidate)
        candidate.wait(["acquired"])
        for step in (_HOUR, -_HOUR):
            monkeypatch.setattr(time, "time", lambda step=step: now() + step)
            for _ in range(20):
                time.sleep(min(elector.session, 1) / 20)
                assert 0 < one.lease() <= elector.session
        one.stop()
        assert candidate.story == ["acquired", "revoked"]

    def test_leadership_passes_through_hundreds_of_candidates(
        self, contest: ElectorUnderTest, measured: Measure
    ) -> None:
        _Crowd(contest, 2).dissolve()  # what a process opens once, and keeps, is open now
        threads, files = set(threading.enumerate()), _open_files()
        crowd = _Crowd(contest, _CANDIDATES)
        for _ in range(contest.elections):
            crowd.hand_over()
            crowd.enter()
        crowd.dissolve()
        crowd.assert_orderly()
        measured("median hand-over", sorted(crowd.took)[len(crowd.took) // 2])
        measured("longest hand-over", max(crowd.took))
        _await(lambda: set(threading.enumerate()) <= threads, lambda: _left(threads))
        _await(lambda: _open_files() <= files, lambda: "connections are left behind")

    def test_nobody_leads_while_the_leader_drains(self, election: Election, measured: Measure) -> None:
        election.enter(2, drain=min(_DRAIN_SECONDS, election.session / 2))
        leader = election.hear("acquired", 60).contender
        leader.stop()
        drained = election.hear("revoked", 60, leader)
        successor = election.hear("acquired", 60)
        measured("hand-over", successor.at - drained.at)

    def test_who_comes_and_goes_does_not_disturb_the_leader(self, election: Election) -> None:
        election.enter()
        leader = election.hear("acquired", 60).contender
        first, second = election.enter(2)
        assert election.hear_all(1.0) == []
        first.stop()
        election.enter()
        assert election.hear_all(1.0) == []
        second.kill()
        assert election.hear_all(1.5 * election.session) == []
        assert leader.process.poll() is None


class _Crowd:
    """Candidates in this process, one of which leads.

    Attributes:
        took: Seconds of each hand-over.
    """

    def __init__(self, under: ElectorUnderTest, count: int) -> None:
        self._under = under
        self._standing: dict[Elector, RecordingCandidate] = {}
        self._gone: list[RecordingCandidate] = []
        self.took: list[float] = []
        for _ in range(count):
            self.enter()

    def enter(self) -> None:
        """Adds a candidate."""
        elector, candidate = self._under.create(), RecordingCandidate()
        elector.start(candidate)
        self._standing[elector] = candidate

    def hand_over(self) -> None:
        """Has the leader leave, and waits until the next leads, if anybody is left."""
        leader = self._leader()
        asked = time.monotonic()
        leader.stop()
        candidate = self._standing.pop(leader)
        assert candidate.story == ["acquired", "revoked"]
        self._gone.append(candidate)
        if self._standing:
            self._leader()
            self.took.append(time.monotonic() - asked)

    def dissolve(self) -> None:
        """Has each candidate lead, and leave."""
        while self._standing:
            self.hand_over()

    def assert_orderly(self) -> None:
        """Asserts that no two led at once."""
        terms = sorted(tuple(at for _, at in candidate.told) for candidate in self._gone)
        for (_, end), (begin, _) in pairwise(terms):
            assert end <= begin, f"two led at once: {terms}"

    def _leader(self) -> Elector:
        deadline = time.monotonic() + 60
        while not (leaders := [each for each, candidate in self._standing.items() if candidate.told]):
            assert time.monotonic() < deadline, "nobody leads"
            time.sleep(0.002)
        assert len(leaders) == 1, "two lead at once"
        return leaders[0]


def _await(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + _CLOSE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.02)


def _left(before: set[threading.Thread]) -> str:
    """Says which threads are left behind, and where they are."""
    frames = sys._current_frames()  # noqa: SLF001 - the only way to them
    left = [thread for thread in threading.enumerate() if thread not in before]
    stacks = [
        f"{thread.name}:\n" + "".join(traceback.format_stack(frame))
        for thread in left
        if (frame := frames.get(thread.ident or 0))
    ]
    return "\n".join(["threads are left behind", *stacks])


def _open_files() -> int:
    """Returns how many files and connections this process has open, where the system tells it."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0
