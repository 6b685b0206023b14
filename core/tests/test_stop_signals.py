"""The effects of the first signal, and of the second."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from outbox_core.cli import invocation
from outbox_core.cli.invocation import StopSignals


@pytest.fixture
def left(monkeypatch):
    """The exit codes of hard stops; restores the signal handlers."""
    codes: list[int] = []
    monkeypatch.setattr(invocation, "exit_now", codes.append)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield codes
    for number, handler in handlers.items():
        signal.signal(number, handler)


def tell(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_for_the_end(left, number):
    with StopSignals() as signals:
        assert not signals.requested.is_set()
        tell(number)
        assert signals.requested.wait(30)
    assert left == []


@pytest.mark.parametrize(
    ("first", "second", "codes"),
    [
        (signal.SIGTERM, signal.SIGTERM, [143]),
        (signal.SIGHUP, signal.SIGINT, [130]),
        (signal.SIGTERM, signal.SIGHUP, []),  # both come from systemd's SendSIGHUP
        (signal.SIGHUP, signal.SIGHUP, []),  # both come from a terminal that is closed
    ],
)
def test_the_second_stops_hard_unless_it_is_a_hangup(left, first, second, codes):
    with StopSignals():
        tell(first, second)
    assert left == codes


def test_a_hangup_that_is_ignored_stays_so(left):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignals(outlives_hangup=True) as signals:
        tell(signal.SIGHUP)
        assert not signals.requested.wait(0.1)
        assert not signals.take_hangup()


def test_a_hangup_stops_nobody_who_does_something_else_with_it(left):
    with StopSignals(outlives_hangup=True) as signals:
        for _ in range(2):
            tell(signal.SIGHUP)
            while not signals.take_hangup():
                time.sleep(0.001)
            assert not signals.take_hangup()
        assert not signals.requested.is_set()
        tell(signal.SIGTERM, signal.SIGHUP)
        assert signals.requested.wait(30)
        while not signals.take_hangup():
            time.sleep(0.001)
    assert left == []


@pytest.mark.timeout(240)
def test_a_signal_may_arrive_while_the_request_is_waited_for(left):
    """A lock that the interrupted code holds would block the handler for ever."""
    for _ in range(100):
        with StopSignals() as signals:
            sender = threading.Timer(0.002, tell, (signal.SIGHUP,))
            sender.start()
            while not signals.requested.wait(0):
                pass
            sender.join()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
    assert left == []
