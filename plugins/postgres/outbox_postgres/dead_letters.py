"""An operator's connection to the dead letters of one outbox, whose headers are arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_sdk import MarkedRecord
from outbox_sdk.portable import PortableDeadLetters

from outbox_postgres.layout import Layout
from outbox_postgres.rows import record
from outbox_postgres.session import Session


class PostgresDeadLetters(PortableDeadLetters):
    """The ``DeadLetters`` of PostgreSQL. Made by ``PostgresDialect.dead_letters``.

    Args:
        session: The connection.
        layout: The outbox as found.
    """

    def __init__(self, session: Session, layout: Layout) -> None:
        super().__init__(session, layout.known, binary=layout.binary)
        # Whoever frees a key has the next mark of each lane start at the head, see ``settled``.
        self._sql.hold_lanes = (
            f"UPDATE {self._sql.fence} SET releases = releases + 1"  # noqa: S608 - quoted
            " WHERE name = {name} RETURNING lane"
        )

    def _read(self, row: Sequence[Any]) -> MarkedRecord:
        return record((*row[:6], None))
