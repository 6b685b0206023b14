"""A connection to an outbox, or to its database, that outlives temporary errors; without PySpark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Generic, Protocol, TypeVar

from outbox_api import DriverError

log = logging.getLogger("outbox.spark")

RETRY_SECONDS = 0.5


class Closable(Protocol):
    """What is connected."""

    def close(self) -> Any: ...  # noqa: D102 - as it says


Connected = TypeVar("Connected", bound=Closable)
Answer = TypeVar("Answer")


class Connection(Generic[Connected]):
    """A connection that is made anew after temporary errors, for up to ``patience`` seconds."""

    def __init__(self, connect: Callable[[], Connected], patience: float) -> None:
        self._connect = connect
        self._patience = patience
        self._table: Connected | None = None

    def ask(self, question: Callable[[Connected], Answer]) -> Answer:
        """Returns the answer to a question that may be repeated."""
        until = monotonic() + self._patience
        while True:
            try:
                self._table = self._table or self._connect()
                return question(self._table)
            except DriverError as error:
                self.close()
                if not error.retryable or monotonic() >= until:
                    raise
                log.warning("the outbox cannot be used at present: %s", error)
                sleep(RETRY_SECONDS)

    def close(self) -> None:
        """Disconnects. Idempotent."""
        if self._table is not None:
            self._table.close()
            self._table = None
