"""The way to the database and back, on which requests and replies are late or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from .base_statements import Marked
from .database import FAILED, Database, Transaction
from .scheduler import Host

ROUND_SECONDS = 0.002
"""The mean of a reply's time and of a request's."""


class Wire:
    """Carries statements and answers.

    Attributes:
        lossy: Which part of all statements meets an error on the way.
        late: The longest that a request may take in a spike, in seconds; 0 for no spikes.
        byte_seconds: How long a byte of a reply takes.
    """

    def __init__(self, database: Database, chance: Random, counts: Counter[str]) -> None:
        self.database = database
        self.lossy = 0.0
        self.late = 0.0
        self.byte_seconds = 0.0
        self._chance = chance
        self._counts = counts

    def delay(self) -> float:
        """Returns how long a request is on its way."""
        if self.late and self._chance.random() < 0.1:
            self._counts["late statements"] += 1
            return self._chance.random() * self.late
        return self._chance.random() * ROUND_SECONDS

    def call(
        self, host: Host, statement: Transaction, answer: Callable[[Any], None], boot: int | None = None
    ) -> None:
        """Sends a statement; ``answer`` is called once, on the caller's host, with the reply or an error.

        Args:
            host: The caller's host.
            statement: What to execute.
            answer: Takes the reply.
            boot: The boot of the database that the connection was made to; a new connection for ``None``.
        """
        call = _Call(self, host, answer)
        statement.answer, statement.client = call.reply, host
        if self._chance.random() < self.lossy:
            self._lose(call, statement)
        if not call.never_arrives:
            boot = self.database.boot if boot is None else boot
            self.database.scheduler.after(self.delay(), self._arrive, call, statement, boot)

    def _lose(self, call: _Call, statement: Transaction) -> None:
        fate = self._chance.choice(("lost requests", "lost replies", "lost replies", "cut connections"))
        self._counts[fate] += 1
        if fate == "cut connections":
            statement.cut = True
            return
        call.never_arrives = fate == "lost requests"
        call.mute = True
        call.host.after(self._chance.choice((0.002, 0.02, 0.3)), call.deliver, FAILED)

    def _arrive(self, call: _Call, statement: Transaction, boot: int) -> None:
        if self.database.down or self.database.boot != boot:
            call.reply(FAILED)
        else:
            statement.start()


class _Call:
    """One statement that is out."""

    __slots__ = ("_answer", "_wire", "host", "mute", "never_arrives")

    def __init__(self, wire: Wire, host: Host, answer: Callable[[Any], None]) -> None:
        self.host = host
        self.mute = self.never_arrives = False
        self._wire = wire
        self._answer = answer

    def reply(self, result: Any) -> None:
        """Sends the reply on its way, unless it is to be lost."""
        if not self.mute:
            size = result.bytes if isinstance(result, Marked) else 0
            self.host.after(self._wire.delay() + size * self._wire.byte_seconds, self.deliver, result)

    def deliver(self, result: Any) -> None:
        self._answer(result)
