"""The suite for electors passes for one that keeps the contract, and fails for each that breaks it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from outbox_api import Candidate, Elector
from outbox_api.election import LeaseElector, LeaseTimes
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest, handover

SESSION = 8.0
"""Seconds: a leader that a busy machine halts for three seconds leads on."""


class Frequent(LeaseTimes):
    """Times of an elector that asks forty times a second all the same."""

    confirmations = 200


TIMES = Frequent(session_timeout=SESSION, min_poll_interval=0.02)


@dataclass
class Coordinator:
    """Grants a lease until it is released."""

    holder: str = ""
    number: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, holder: str, seconds: float) -> int | None:
        with self.lock:
            if self.holder in ("", holder):
                self.number += self.holder == ""
                self.holder = holder
                return self.number
            return None

    def release(self, holder: str) -> None:
        if self.holder == holder:
            self.holder = ""

    def close(self) -> None:
        pass


class Generous(Coordinator):
    """Grants its lease to everybody."""

    def take(self, holder: str, seconds: float) -> int | None:
        return 1


class TellsTwice(LeaseElector):
    def start(self, candidate: Candidate) -> None:
        super().start(candidate)
        candidate.acquired()


class KeepsItsLease(LeaseElector):
    def lease(self) -> float:
        return max(0.1, super().lease())


class LeavesAThread(LeaseElector):
    def stop(self) -> None:
        super().stop()
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()


class LeavesAConnection(LeaseElector):
    left: ClassVar[list[socket.socket]] = []

    def stop(self) -> None:
        super().stop()
        self.left.append(socket.socket())


@dataclass(frozen=True)
class Candidacies(ElectorUnderTest):
    """An elector of this process, without a plugin."""

    make: Callable[[Coordinator], Elector] = lambda coordinator: LeaseElector(lambda: coordinator, TIMES, "e")
    coordinator: Coordinator = field(default_factory=Coordinator)

    def create(self) -> Elector:
        return self.make(self.coordinator)


def elector(kind: type[LeaseElector]) -> Candidacies:
    return Candidacies(
        "none", None, SESSION, elections=3, make=lambda coordinator: kind(lambda: coordinator, TIMES, "e")
    )


def by_the_wall_clock(coordinator: Coordinator) -> Elector:
    return LeaseElector(lambda: coordinator, TIMES, "e", clock=lambda: time.time())  # noqa: PLW0108 - it is replaced


SOLE = "test_a_sole_candidate_leads_and_leaves_nothing_behind"
CROWD = "test_leadership_passes_through_hundreds_of_candidates"
STEP = "test_a_step_of_the_wall_clock_changes_nothing"


def run(test: str, under: ElectorUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = ElectorConformance()
    if test == CROWD:
        suite.test_leadership_passes_through_hundreds_of_candidates(under, lambda what, seconds: None)
    elif test == STEP:
        suite.test_a_step_of_the_wall_clock_changes_nothing(under, monkeypatch)
    else:
        suite.test_a_sole_candidate_leads_and_leaves_nothing_behind(under)


@pytest.mark.parametrize("test", [SOLE, CROWD, STEP])
def test_an_elector_that_keeps_the_contract_passes(test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(test, elector(LeaseElector), monkeypatch)


@pytest.mark.parametrize(
    ("test", "under"),
    [
        (SOLE, elector(TellsTwice)),
        (SOLE, elector(KeepsItsLease)),
        (SOLE, elector(LeavesAThread)),
        (CROWD, elector(LeavesAConnection)),
        (CROWD, Candidacies("none", None, SESSION, elections=3, coordinator=Generous())),
        (STEP, Candidacies("none", None, SESSION, make=by_the_wall_clock)),
    ],
    ids=["told twice", "a lease for ever", "a thread", "a connection", "two leaders", "the wall clock"],
)
def test_an_elector_that_breaks_it_fails(
    test: str, under: ElectorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_CLOSE_SECONDS", 1.0)
    with pytest.raises(AssertionError):
        run(test, under, monkeypatch)
    for left in LeavesAConnection.left:
        left.close()
