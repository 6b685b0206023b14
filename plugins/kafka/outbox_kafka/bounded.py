"""Waits no longer than it wants for a call that may never return."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread


def bounded(call: Callable[[], object], timeout: float) -> bool:
    """Runs ``call`` on a thread of its own; returns whether it has returned within ``timeout`` seconds.

    If it has not, it goes on behind the caller's back, but keeps no process from ending.

    Raises:
        Exception: What ``call`` raised within that time.
    """
    raised: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where it was asked for
            raised.append(error)

    thread = Thread(target=run, name="outbox-kafka-bounded", daemon=True)
    thread.start()
    thread.join(timeout)
    if raised:
        raise raised[0]
    return not thread.is_alive()
