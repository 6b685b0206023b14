"""What the statements that delete rows have in addition where delivered records are kept."""

from __future__ import annotations

from typing import NamedTuple

from outbox_api.portable.keeping import copying
from outbox_api.portable.sources import COLUMNS

from outbox_postgres.ddl import PostgresIdiom
from outbox_postgres.layout import Layout


class Keeping(NamedTuple):
    """Parts of a statement that deletes rows; those of one that keeps none without arguments.

    Attributes:
        returning: What the DELETE returns.
        insert: What keeps the rows of ``{deleted}``, which the DELETE returned; empty for nothing.
    """

    returning: str = "id"
    insert: str = ""

    def kept(self, deleted: str) -> str:
        """Writes the part of the statement that keeps what the part ``deleted`` returns."""
        given = {"token": "$4::bigint", "deleted": deleted}
        return f", kept AS ({self.insert.format_map(given)})" if self.insert else ""


def keeping(layout: Layout) -> Keeping:
    """Returns how rows of an outbox are kept; nothing if they are not."""
    if not layout.keep:
        return Keeping()
    copied = copying(PostgresIdiom(), layout.tables, layout.keep, layout.extras, source="{deleted}")
    returning = ", ".join((*COLUMNS, "create_time", *layout.extras))
    return Keeping(returning, f"{copied} ORDER BY id")
