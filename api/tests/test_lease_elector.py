"""The elector over a lease, with a coordinator in memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Thread
from unittest.mock import Mock

import pytest
from outbox_api import ConfigError, DriverError, Level
from outbox_api.election import LeaseElector, LeaseTimes, required_group
from outbox_testkit.conformance.recording import RecordingCandidate

TIMES = LeaseTimes(session_timeout=3.0, min_poll_interval=0.01)


class Coordinator:
    """Grants its lease to whoever asks, unless it is away."""

    def __init__(self) -> None:
        self.problem = ""
        self.failures = 0

    def take(self, holder: str, seconds: float) -> int | None:
        if self.problem:
            self.failures += 1
            raise DriverError(self.problem, retryable=True)
        return 1

    def release(self, holder: str) -> None:
        pass

    def close(self) -> None:
        pass


def test_an_outage_is_one_warning_for_each_error_and_one_line_at_its_end(
    caplog: pytest.LogCaptureFixture, logged: Callable[[str], list[logging.LogRecord]]
) -> None:
    caplog.set_level(logging.DEBUG, "outbox")
    coordinator, candidate = Coordinator(), RecordingCandidate()
    elector = LeaseElector(lambda: coordinator, TIMES, "shop")
    elector.start(candidate)
    candidate.wait(["acquired"])
    for problem in ("away", "starting"):
        coordinator.problem, coordinator.failures = problem, 0
        while coordinator.failures < 3:
            time.sleep(0.01)
    coordinator.problem = ""
    candidate.wait(["acquired", "fenced", "acquired"])
    elector.stop()
    records = logged("outbox.election")
    loud = [each.getMessage() for each in records if each.levelno >= logging.INFO]
    assert loud == [
        "election 'shop': away",
        "election 'shop': starting",
        "election 'shop': answered again",
    ]
    assert sum("away" in each.getMessage() for each in records) > 2, "the others are debug lines"


@pytest.mark.parametrize(
    ("times", "level", "said"),
    [
        (LeaseTimes(), Level.OK, "confirmed every 1.25 s, ends 5 s after the last confirmation"),
        (LeaseTimes(session_timeout=2), Level.OK, "ends 1.6 s after the last confirmation"),
        (LeaseTimes(heartbeat_timeout=9), Level.WARNING, "of 9 s has no effect at a session timeout of 10 s"),
        (LeaseTimes(min_poll_interval=3), Level.WARNING, "one late confirmation ends leadership"),
    ],
)
def test_times_are_checked_against_each_other(times: LeaseTimes, level: Level, said: str) -> None:
    [found] = times.findings()
    assert found.level is level
    assert said in found.message


def test_an_election_needs_a_name() -> None:
    assert required_group("shop") == "shop"
    with pytest.raises(ConfigError, match="leaderGroupID"):
        required_group(None)


class Watched(Coordinator):
    """Tells when the lease may be free; once told to, a renewal takes until the candidate has drained."""

    def __init__(self, candidate: RecordingCandidate) -> None:
        super().__init__()
        self.candidate = candidate
        self.stopping = self.waited = False
        self.renewing = Event()

    def take(self, holder: str, seconds: float) -> int | None:
        if self.stopping:
            self.renewing.set()
            self.candidate.wait(["acquired", "revoked"])
            time.sleep(0.05)  # until the elector knows it, too
        return super().take(holder, seconds)

    def wait(self, seconds: float) -> None:
        self.waited = True


def test_a_lease_is_released_at_once_when_the_candidate_has_drained() -> None:
    candidate = RecordingCandidate()
    coordinator = Watched(candidate)
    elector = LeaseElector(lambda: coordinator, TIMES, "shop")
    elector.start(candidate)
    candidate.wait(["acquired"])
    coordinator.stopping = True
    assert coordinator.renewing.wait(60)
    elector.stop()
    assert candidate.story == ["acquired", "revoked"]
    assert not coordinator.waited, "nobody waits for a lease that this process is to release"


class Closing(Coordinator):
    """Knows whether it is closed, and cannot release the lease."""

    closed = False

    def release(self, holder: str) -> None:
        raise KeyError(holder)

    def close(self) -> None:
        self.closed = True


def test_a_connection_is_closed_whatever_happens_to_the_release_of_its_lease() -> None:
    coordinator, candidate = Closing(), RecordingCandidate()
    elector = LeaseElector(lambda: coordinator, TIMES, "shop")
    elector.start(candidate)
    candidate.wait(["acquired"])
    elector.stop()
    assert coordinator.closed


def test_a_connection_is_closed_if_there_was_no_thread_for_its_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator = Closing()
    elector = LeaseElector(lambda: coordinator, TIMES, "shop")
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="new thread"):
            elector.start(RecordingCandidate())
    elector.stop()
    assert coordinator.closed
