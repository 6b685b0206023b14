"""A window that ends at the oldest open transaction: rows carry the id of the one that wrote them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from bench.methods.method import LIMIT, Method, Place, Row
from bench.methods.offsets import COLUMNS, sent

REACHED = """
CREATE TABLE reached (xid xid8, id bigint); INSERT INTO reached VALUES ('0', 0);
CREATE INDEX ON outbox (xid, id);
"""


@dataclass
class Window:
    """Reads what was written by transactions that had begun before every open one."""

    place: Place

    def poll(self) -> Generator[None]:
        """Reads by transaction id and id, sends, then stores both of the last."""
        [(xid, reached)] = self.place.all("SELECT xid::text, id FROM reached")
        query = (
            f"SELECT {COLUMNS}, xid::text FROM outbox WHERE (xid, id) > (%s::xid8, %s)"
            f" AND xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid, id LIMIT {LIMIT}"
        )
        found = self.place.all(query, xid, reached)
        yield from sent(self.place, [Row(*row[:3]) for row in found])
        if found:
            self.place.run("UPDATE reached SET xid = %s::xid8, id = %s", found[-1][3], found[-1][0])


METHODS = (Method("transaction window", Window, REACHED),)
