"""What the statements that delete rows have in addition where delivered records are kept."""

from __future__ import annotations

from typing import NamedTuple

from outbox_api.portable.keeping import SUPERSEDED, copying
from outbox_api.portable.sources import COLUMNS

from outbox_postgres.ddl import PostgresIdiom
from outbox_postgres.layout import Layout


class Keeping(NamedTuple):
    """Parts of a statement that deletes rows; those of one that keeps none without arguments.

    Attributes:
        returning: What the DELETE returns.
        insert: What keeps the rows of ``{deleted}``, which the DELETE returned; empty for nothing.
        insert_superseded: The same for rows that are superseded.
    """

    returning: str = "id"
    insert: str = ""
    insert_superseded: str = ""

    def kept(self, deleted: str, *, superseded: bool = False) -> str:
        """Writes the part of the statement that keeps what the part ``deleted`` returns."""
        given = {"token": "$4::bigint", "deleted": deleted}
        insert = self.insert_superseded if superseded else self.insert
        return f", kept AS ({insert.format_map(given)})" if insert else ""


def keeping(layout: Layout) -> Keeping:
    """Returns how rows of an outbox are kept; nothing if they are not."""
    if not layout.keep:
        return Keeping()
    idiom, returning = PostgresIdiom(), ", ".join((*COLUMNS, "create_time", *layout.extras))
    given = (idiom, layout.tables, layout.keep, layout.extras)
    inserts = (copying(*given, source="{deleted}", lacks=lacks) for lacks in (0, SUPERSEDED))
    return Keeping(returning, *(f"{insert} ORDER BY id" for insert in inserts))
