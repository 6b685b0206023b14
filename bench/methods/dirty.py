"""Reading what is not committed, where a database lets one: MySQL."""

from __future__ import annotations

from collections.abc import Generator

from bench.methods.method import Method
from bench.methods.offsets import KEPT, ById


class Dirty(ById):
    """Reads behind the last id, whoever has committed."""

    def poll(self) -> Generator[None]:
        """One look."""
        self.place.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        yield from super().poll()


METHODS = (Method("read uncommitted", Dirty, KEPT, database="mysql"),)
