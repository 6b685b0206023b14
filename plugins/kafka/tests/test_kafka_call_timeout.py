"""Time limits of calls that may never return; no broker."""

from __future__ import annotations

import threading
import weakref
from functools import partial

import pytest
from outbox_kafka.call_timeout import CallTimeout


def test_calls_return_or_raise_in_turn() -> None:
    timeout, done, threads = CallTimeout(), [], set()

    def note(number: int) -> None:
        done.append(number)
        threads.add(threading.get_ident())

    assert timeout.run(lambda: note(1), 5)
    with pytest.raises(ZeroDivisionError):
        timeout.run(lambda: 1 / 0, 5)
    assert timeout.run(lambda: note(2), 5)
    assert done == [1, 2]
    assert len(threads - {threading.get_ident()}) == 1
    timeout.close()
    timeout.close()


def test_call_that_does_not_return_holds_up_nobody() -> None:
    timeout, release, late = CallTimeout(), threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(20)
        late.set()

    assert not timeout.run(hang, 0.01)
    assert timeout.run(lambda: None, 5)
    timeout.close()
    assert not late.is_set()
    release.set()
    assert late.wait(30)


def test_what_a_call_refers_to_is_let_go() -> None:
    class Client:
        def ask(self) -> None:
            pass

    timeout, client = CallTimeout(), Client()
    gone = threading.Event()
    weakref.finalize(client, gone.set)
    assert timeout.run(partial(Client.ask, client), 5)
    del client
    assert gone.wait(30)
    timeout.close()
