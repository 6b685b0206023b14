"""Elections among processes that leave, die and freeze, on a real broker."""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from outbox_sdk.election import elapsed

from .rival import Rival, Told

SESSION = 6.0
"""Seconds: the least that brokers permit by default."""

SETTLED = 1.2
"""Seconds between two rebalances: librdkafka joins a group no more than once a second."""


class Election:
    """Competing processes, and their events in order of time."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._told: queue.Queue[Told] = queue.Queue()
        self.rivals: list[Rival] = []

    def enter(self, count: int, *, drain: float = 0) -> None:
        entering = [
            Rival(self._told, self._bootstrap, self._group, session=SESSION, drain=drain)
            for _ in range(count)
        ]
        self.rivals += entering
        started: set[Rival] = set()
        kept = []
        while started != set(entering):
            told = self._told.get(timeout=60)
            if told.what == "started":
                started.add(told.rival)
            else:
                kept.append(told)
        for told in kept:
            self._told.put(told)

    def hear(self, what: str, timeout: float, rival: Rival | None = None) -> Told:
        """Returns the rival's next event of that name; drops the events before it."""
        deadline = time.monotonic() + timeout
        while True:
            told = self._told.get(timeout=max(0.001, deadline - time.monotonic()))
            if told.what == what and rival in (None, told.rival):
                return told

    def hear_all(self, seconds: float) -> list[str]:
        """Returns the events of the next seconds."""
        time.sleep(seconds)
        return [self._told.get().what for _ in range(self._told.qsize())]


@pytest.fixture
def election(kafka_bootstrap: str, topic: str) -> Iterator[Election]:
    election = Election(kafka_bootstrap, topic)
    yield election
    for rival in election.rivals:
        rival.end()


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str, float], None]:
    """Records a measured time: printed with ``-s``, and stored in a report file."""

    def note(what: str, seconds: float) -> None:
        record_property(what, seconds)
        print(f"\n{what}: {seconds:.2f} s")  # noqa: T201 - for whoever measures

    return note


def test_standby_takes_over_at_once_when_the_leader_leaves(
    election: Election, report: Callable[[str, float], None]
) -> None:
    election.enter(3)
    leader = election.hear("acquired", 60)
    for _ in range(2):
        time.sleep(SETTLED)
        asked = elapsed()
        leader.rival.stop()
        successor = election.hear("acquired", 10)
        assert successor.rival is not leader.rival
        report("takeover after the leader left", successor.at - asked)
        assert successor.at - asked < 1
        leader = successor


def test_standby_takes_over_within_the_session_when_the_leader_dies(
    election: Election, report: Callable[[str, float], None]
) -> None:
    election.enter(3)
    leader = election.hear("acquired", 60)
    died = elapsed()
    leader.rival.process.kill()
    successor = election.hear("acquired", SESSION + 30)
    report("takeover after the leader was killed", successor.at - died)
    assert successor.at - died < SESSION + 5


def test_newcomers_do_not_disturb_the_leader(election: Election) -> None:
    election.enter(1)
    election.hear("acquired", 60)
    election.enter(2)
    assert election.hear_all(2) == []
    election.rivals[-1].process.kill()  # nor does a standby that dies, though the group must rebalance
    election.rivals[-2].stop()
    assert [what for what in election.hear_all(SESSION + 2) if what != "stopped"] == []


def test_leader_that_was_frozen_notices_and_stands_by(
    election: Election, report: Callable[[str, float], None]
) -> None:
    election.enter(2)
    leader = election.hear("acquired", 60).rival
    frozen = elapsed()
    leader.process.send_signal(signal.SIGSTOP)
    successor = election.hear("acquired", SESSION + 30)
    assert successor.rival is not leader
    report("takeover after the leader was frozen", successor.at - frozen)
    assert successor.at - frozen < SESSION + 5
    time.sleep(max(0, 2 * SESSION - (elapsed() - frozen)))
    woken = elapsed()
    leader.process.send_signal(signal.SIGCONT)
    fenced = election.hear("fenced", 30, leader)
    report("notice of the frozen leader", fenced.at - woken)
    assert fenced.at - woken < 1
    assert election.hear_all(2) == []
    successor.rival.stop()
    assert election.hear("acquired", 30).rival is leader


def test_nobody_leads_while_the_leader_drains(election: Election) -> None:
    election.enter(2, drain=3)
    leader = election.hear("acquired", 60).rival
    leader.stop()
    drained = election.hear("revoked", 30, leader)
    assert drained.at < election.hear("acquired", 30).at
