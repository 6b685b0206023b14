"""Calls that may never return; no broker."""

from __future__ import annotations

import threading
import weakref
from functools import partial

import pytest
from outbox_kafka.bounded import Bounded


def test_calls_return_or_raise_in_turn() -> None:
    bounded, done, threads = Bounded(), [], set()

    def note(number: int) -> None:
        done.append(number)
        threads.add(threading.get_ident())

    assert bounded.call(lambda: note(1), 5)
    with pytest.raises(ZeroDivisionError):
        bounded.call(lambda: 1 / 0, 5)
    assert bounded.call(lambda: note(2), 5)
    assert done == [1, 2]
    assert len(threads - {threading.get_ident()}) == 1
    bounded.close()
    bounded.close()


def test_call_that_does_not_return_holds_up_nobody() -> None:
    bounded, release, late = Bounded(), threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(20)
        late.set()

    assert not bounded.call(hang, 0.01)
    assert bounded.call(lambda: None, 5)
    bounded.close()
    assert not late.is_set()
    release.set()
    assert late.wait(5)


def test_what_a_call_refers_to_is_let_go() -> None:
    class Client:
        def ask(self) -> None:
            pass

    bounded, client = Bounded(), Client()
    gone = threading.Event()
    weakref.finalize(client, gone.set)
    assert bounded.call(partial(Client.ask, client), 5)
    del client
    assert gone.wait(5)
    bounded.close()
