"""Methods that remember how far they have read: by id, by time, or both."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.methods.method import GRACE, LIMIT, Method, Place, Row

COLUMNS = "id, kafka_key, kafka_value"
KEPT = "CREATE TABLE reached (at bigint, time double precision); INSERT INTO reached VALUES (0, 0);"
"""Where a scraper of one's own keeps its offset."""


def sent(place: Place, rows: list[Row]) -> Generator[None]:
    """Sends records, and waits for all of them."""
    for row in rows:
        place.broker.send(row)
        yield
    place.broker.confirmed()
    yield


@dataclass
class ById:
    """Reads what is behind the last id."""

    place: Place

    def poll(self) -> Generator[None]:
        """Reads, sends, then stores the last id."""
        [(reached,)] = self.place.all("SELECT at FROM reached")
        rows = self.wanted(reached)
        yield from sent(self.place, rows)
        if rows:
            self.place.run("UPDATE reached SET at = %s", rows[-1].id)

    def wanted(self, reached: int) -> list[Row]:
        """Returns the next records."""
        query = f"SELECT {COLUMNS} FROM outbox WHERE id > %s ORDER BY id LIMIT {LIMIT}"
        return self.place.rows(query, reached)


class Pinned(ById):
    """Stops before a gap in the ids until it is filled, or the grace period is over."""

    gap_since: tuple[int, float] | None = None

    def wanted(self, reached: int) -> list[Row]:
        """Returns the next records up to the first gap."""
        dense: list[Row] = []
        for row in super().wanted(reached):
            expected = dense[-1].id + 1 if dense else reached + 1
            if row.id != expected and not self._waited(expected):
                break
            dense.append(row)
        return dense

    def _waited(self, gap: int) -> bool:
        now = self.place.clock.now
        if self.gap_since is None or self.gap_since[0] != gap:
            self.gap_since = (gap, now)
        return now - self.gap_since[1] >= GRACE


class Remembered(ById):
    """Goes on behind a gap, and looks for the missing ids as long as the grace period lasts."""

    def poll(self) -> Generator[None]:
        """Reads what is behind the last id, and what fills gaps."""
        [(reached,)] = self.place.all("SELECT at FROM reached")
        now = self.place.clock.now
        self.place.run("DELETE FROM gaps WHERE since < %s", now - GRACE)
        query = f"SELECT {COLUMNS} FROM outbox WHERE id IN (SELECT id FROM gaps) ORDER BY id"
        late, new = self.place.rows(query), self.wanted(reached)
        yield from sent(self.place, [*late, *new])
        found = {row.id for row in (*late, *new)}
        last = new[-1].id if new else reached
        for gap in sorted(set(range(reached + 1, last)) - found):
            self.place.run("INSERT INTO gaps VALUES (%s, %s)", gap, now)
        for row in late:
            self.place.run("DELETE FROM gaps WHERE id = %s", row.id)
        self.place.run("UPDATE reached SET at = %s", last)


@dataclass
class ByTime:
    """Reads what was written since the last time, perhaps up to some time ago."""

    place: Place
    behind: float = 0.0  # seconds
    with_id: bool = False  # whether the id tells records of one time apart

    def poll(self) -> Generator[None]:
        """Reads, sends, then stores time and id of the last."""
        [(reached, time)] = self.place.all("SELECT at, time FROM reached")
        until = self.place.clock.now - self.behind
        after = "(created > %s OR created = %s AND id > %s)" if self.with_id else "created > %s"
        values = (time, time, reached) if self.with_id else (time,)
        query = f"SELECT {COLUMNS}, created FROM outbox WHERE {after} AND created <= %s ORDER BY created, id"
        found = self.place.all(f"{query} LIMIT {LIMIT}", *values, until)
        yield from sent(self.place, [Row(*row[:3]) for row in found])
        if found:
            self.place.run("UPDATE reached SET at = %s, time = %s", found[-1][0], found[-1][3])


@dataclass
class Trailing:
    """Reads behind the last id what is older than the grace period."""

    place: Place

    def poll(self) -> Generator[None]:
        """Reads, sends, then stores the last id."""
        [(reached,)] = self.place.all("SELECT at FROM reached")
        old = self.place.clock.now - GRACE
        query = f"SELECT {COLUMNS} FROM outbox WHERE id > %s AND created <= %s ORDER BY id LIMIT {LIMIT}"
        rows = self.place.rows(query, reached, old)
        yield from sent(self.place, rows)
        if rows:
            self.place.run("UPDATE reached SET at = %s", rows[-1].id)


@dataclass
class Connector:
    """Kafka Connect's JDBC source: its offset is in Kafka, and is stored after what it has sent.

    It queries without a limit, and sends what it has found batch by batch.
    """

    place: Place
    mode: str
    found: list[Any] = field(default_factory=list)  # not sent yet

    def poll(self) -> Generator[None]:
        """Sends a batch of the last query, or else of the next, then stores the offset of its last row."""
        batch = self.found[:LIMIT] or self._query()[:LIMIT]
        yield from sent(self.place, [Row(*row[:3]) for row in batch])
        if batch:
            self.found = self.found[len(batch) :]
            self.place.memory["id"], self.place.memory["time"] = batch[-1][0], batch[-1][3]

    def _query(self) -> list[Any]:
        """Reads by the mode's columns what is behind the offset."""
        last, time = self.place.memory.get("id", 0), self.place.memory.get("time", 0.0)
        now = self.place.clock.now
        match self.mode:
            case "incrementing":
                where, order, values = "id > %s", "id", [last]
            case "timestamp":
                where, order, values = "created > %s AND created < %s", "created", [time, now]
            case _:
                where = "created < %s AND (created = %s AND id > %s OR created > %s)"
                order, values = "created, id", [now, time, last, time]
        query = f"SELECT {COLUMNS}, created FROM outbox WHERE {where} ORDER BY {order}"
        self.found = self.place.all(query, *values)
        return self.found


TIMES = "CREATE INDEX ON outbox (created, id);"
GAPS = KEPT + "CREATE TABLE gaps (id bigint PRIMARY KEY, since double precision);"

METHODS = (
    Method("offset by id", ById, KEPT),
    Method("grace period", Trailing, KEPT),
    Method("gaps: wait", Pinned, KEPT),
    Method("gaps: look again", Remembered, GAPS),
    Method("timestamp", ByTime, KEPT + TIMES),
    Method("timestamp and grace", partial(ByTime, behind=GRACE, with_id=True), KEPT + TIMES),
    Method("JDBC: incrementing", partial(Connector, mode="incrementing")),
    Method("JDBC: timestamp", partial(Connector, mode="timestamp"), TIMES),
    Method("JDBC: timestamp+incrementing", partial(Connector, mode="timestamp+incrementing"), TIMES),
)
