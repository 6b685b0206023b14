"""Threads in virtual time: each drives a generator of requests, as a thread of production does."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from outbox_api import OutboxError

from .scheduler import Host

Reply = Callable[[Any], None]
"""Takes the reply to a request, or the error to throw into the generator."""


class Thread:
    """Drives one generator on a host, and ends with the host.

    Args:
        host: Where it runs.
        steps: Yields requests.
        execute: Executes a request, and calls its second argument with the reply, now or later.
        then: Called with what the generator returned, or the error of a server or of the network
            that ended it.
    """

    def __init__(
        self,
        host: Host,
        steps: Generator[Any, Any, Any],
        execute: Callable[[Any, Reply], None],
        then: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._host = host
        self._steps = steps
        self._execute = execute
        self._then = then
        self._replies: list[Any] = []
        self._running = False
        self._reply(None)

    def _reply(self, reply: Any) -> None:
        self._host.do(self._go_on, reply)

    def _go_on(self, reply: Any) -> None:
        self._replies.append(reply)
        if self._running:  # carried out at once, further up the stack
            return
        self._running = True
        while self._replies:
            self._step(self._replies.pop())
        self._running = False

    def _step(self, reply: Any) -> None:
        try:
            request = self._steps.throw(reply) if isinstance(reply, Exception) else self._steps.send(reply)
        except StopIteration as end:
            self._then(end.value)
        except (OutboxError, OSError, EOFError) as error:
            self._then(error)
        else:
            self._execute(request, self._reply)
