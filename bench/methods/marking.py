"""Mark-purge/reset as the seed describes it, without a fence."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from bench.methods.method import LIMIT, Method, Place, RefusedError
from bench.methods.offsets import COLUMNS

MARK = f"""
UPDATE outbox SET leader_id = %s WHERE id IN
  (SELECT id FROM outbox WHERE leader_id IS NULL OR leader_id <> %s ORDER BY id LIMIT {LIMIT})
RETURNING {COLUMNS}
"""


@dataclass
class Marks:
    """Marks rows by its own id, sends them, purges what is acknowledged and resets what is not."""

    place: Place
    leader: UUID = field(default_factory=uuid4)

    def poll(self) -> Generator[None]:
        """One mark, and what follows."""
        rows = sorted(self.place.rows(MARK, self.leader, self.leader))
        yield
        failed: set[str] = set()
        error: RefusedError | None = None
        for row in rows:
            if row.key not in failed:
                try:
                    self.place.broker.send(row)
                except RefusedError as refused:
                    error = refused
                    failed.add(row.key)
            yield
        self.place.broker.confirmed()
        yield
        acknowledged = [row.id for row in rows if row.key not in failed]
        mine = "id = ANY(%s) AND leader_id = %s"
        self.place.run(f"DELETE FROM outbox WHERE {mine}", acknowledged, self.leader)
        yield
        others = [row.id for row in rows if row.key in failed]
        self.place.run(f"UPDATE outbox SET leader_id = NULL WHERE {mine}", others, self.leader)
        if error is not None:
            raise error


METHODS = (Method("mark-purge/reset", Marks, deletes=True),)
