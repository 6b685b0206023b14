"""Methods that read from the head of the table, and delete what is delivered."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from bench.methods.method import LIMIT, Method, Place, Row
from bench.methods.offsets import COLUMNS, sent


def deleted(place: Place, rows: list[Row]) -> None:
    """Deletes records by their ids."""
    place.run("DELETE FROM outbox WHERE id = ANY(%s)", [row.id for row in rows])


@dataclass
class Blocking:
    """Reads a batch from the head, sends it, waits, deletes it: one thing at a time."""

    place: Place

    def poll(self) -> Generator[None]:
        """One batch."""
        rows = self.place.rows(f"SELECT {COLUMNS} FROM outbox ORDER BY id LIMIT {LIMIT}")
        yield from sent(self.place, rows)
        deleted(self.place, rows)


@dataclass
class Difference:
    """Sends while others are in flight, and leaves out of each look what it has in memory."""

    place: Place
    flight: list[Row] = field(default_factory=list)

    def poll(self) -> Generator[None]:
        """Looks, sends what is new, then deletes what is acknowledged of the look before."""
        known = {row.id for row in self.flight}
        looked = self.place.rows(f"SELECT {COLUMNS} FROM outbox ORDER BY id LIMIT {2 * LIMIT}")
        new = [row for row in looked if row.id not in known][:LIMIT]
        done, self.flight = self.flight, [*self.flight, *new]
        for row in new:
            self.place.broker.send(row)
            yield
        self.place.broker.confirmed()
        yield
        deleted(self.place, done)
        self.flight = self.flight[len(done) :]


@dataclass
class SkipLocked:
    """One of several workers, of which each locks the rows that it sends."""

    place: Place

    def poll(self) -> Generator[None]:
        """Locks a batch that no other has locked, sends it, deletes it, commits."""
        connection = self.place.connection
        with connection.transaction():
            query = f"SELECT {COLUMNS} FROM outbox ORDER BY id LIMIT {LIMIT} FOR UPDATE SKIP LOCKED"
            rows = self.place.rows(query)
            yield
            yield from sent(self.place, rows)
            deleted(self.place, rows)


METHODS = (
    Method("blocking batches", Blocking, deletes=True),
    Method("difference in memory", Difference, deletes=True),
    Method("SKIP LOCKED workers", SkipLocked, workers=2, deletes=True),
)
