"""Connections that do not wait for ever for a server that says nothing."""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg

Result = TypeVar("Result")

GRACE = 5.0
"""Seconds beyond the statement's own time-out."""


class AttentiveConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server has been silent for too long amid a statement.

    Neither libpq nor the server can end such a wait: where a firewall or a proxy has forgotten the connection
    and drops what is sent, the statement may never have reached the server. TCP notices that within ten
    seconds only if nobody acknowledges what is sent, and a proxy does.

    Attributes:
        patience: Seconds of silence; ``None`` for any time.
    """

    patience: float | None = None

    def wait(self, gen: Generator[Any, Any, Result], *arguments: Any, **options: Any) -> Result:
        """Executes what psycopg does, as long as the server goes on to answer.

        Raises:
            psycopg.OperationalError: The server was silent for too long.
        """
        if self.patience is None or arguments or options:
            return super().wait(gen, *arguments, **options)
        try:
            return super().wait(_heard(gen, self.patience))
        except _SilenceError:
            self.close()
            raise


class _SilenceError(psycopg.OperationalError):
    pass


def _heard(gen: Generator[Any, Any, Result], patience: float) -> Generator[Any, Any, Result]:
    """Passes on what psycopg's loop tells a generator, until it has told for too long that nothing came."""
    try:
        wanted = next(gen)
        deadline = monotonic() + patience
        while True:
            ready = yield wanted
            if ready:
                deadline = monotonic() + patience
            elif monotonic() > deadline:
                raise _SilenceError(f"the server has not answered for {patience:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: Result = end.value
        return result
