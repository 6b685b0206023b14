"""The drivers that come with core, as a configuration names them."""

import math
import threading

import pytest
from outbox_api import Level
from outbox_core.config import parse


class Witness:
    """A candidate that records its events, and their threads."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.threads: set[str] = set()
        self.leads = threading.Event()
        self.may_leave = threading.Event()

    def acquired(self) -> None:
        self._note("acquired")
        self.leads.set()

    def revoked(self) -> None:
        self.may_leave.wait(30)
        self._note("revoked")

    def fenced(self) -> None:
        self._note("fenced")

    def failed(self, error: Exception) -> None:
        self._note(f"failed: {error}")

    def _note(self, event: str) -> None:
        self.told.append(event)
        self.threads.add(threading.current_thread().name)


def static():
    return parse("harvest: {elector: static}", "f.yaml", {}).harvest.elector.create()


def test_the_static_elector_leads_until_it_is_stopped():
    elector, witness = static(), Witness()
    assert elector.lease() == 0
    elector.start(witness)
    assert witness.leads.wait(30)
    assert elector.lease() == math.inf
    threading.Timer(0.1, witness.may_leave.set).start()
    elector.stop()
    # Stopping waits for the end of the hand-over.
    assert witness.told == ["acquired", "revoked"]
    assert elector.lease() == 0
    assert witness.threads == {"static-elector"}
    elector.stop()
    assert witness.told == ["acquired", "revoked"]


def test_the_static_elector_can_be_stopped_before_it_starts():
    elector, witness = static(), Witness()
    elector.stop()
    elector.start(witness)
    elector.stop()
    assert witness.told == []


def test_the_static_elector_warns_of_a_second_process():
    assert [finding.level for finding in static().check()] == [Level.WARNING]


def test_the_affinity_none_takes_every_row():
    affinity = parse("harvest: {affinity: none}", "f.yaml", {}).harvest.affinity.create()
    assert list(affinity.eligible()) == list(affinity.eligible([2])) == []
    assert affinity.origin() is None


def test_a_static_elector_whose_thread_does_not_start_can_be_stopped(monkeypatch):
    elector, witness = static(), Witness()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("no thread")))
        with pytest.raises(RuntimeError):
            elector.start(witness)
    elector.stop()
    assert witness.told == []
