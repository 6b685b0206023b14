"""What the statements that delete rows have in addition where delivered records are kept."""

from __future__ import annotations

from typing import NamedTuple

from outbox_api.base.finding import Finding, Level
from outbox_api.portable.keeping import SUPERSEDED, copying
from outbox_api.portable.session import Session
from outbox_api.portable.sources import COLUMNS
from outbox_api.portable.tables import NEEDS

from outbox_postgres.catalogue import RISING, SEQUENCES
from outbox_postgres.ddl import PostgresIdiom
from outbox_postgres.layout import Layout
from outbox_postgres.options import QuotedName

# One statement: what it sees was given out before it reads the sequence, while another leader purges.
_GIVEN = f"""
SELECT s.seqrelid::regclass::text AS name, coalesce(pg_sequence_last_value(s.seqrelid::regclass), 0) AS last
{SEQUENCES.replace("$1::oid", "{kept}::regclass")} AND a.attname = 'position' {RISING}
  AND has_sequence_privilege(s.seqrelid, 'SELECT, USAGE') OFFSET 0"""
_BEHIND = """
SELECT name, last, position
FROM ({given}) AS given,
     LATERAL (SELECT max(position) AS position FROM {table} WHERE position > last) AS kept
WHERE position IS NOT NULL
"""
# The index of positions finds ranges, which a session that marks does not look for.
_BY_RANGES = "SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off"


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


def positions_behind(session: Session, layout: Layout) -> Finding | None:
    """Reports that the sequence of positions is behind kept records, as in a copy made without it.

    Records that are delivered from then on would stand before earlier ones of their keys.
    """
    kept = str(QuotedName(*layout.tables.kept))
    look = _BEHIND.format(given=_GIVEN, table=kept.replace("{", "{{").replace("}", "}}"))
    with session.transaction("compare the positions of kept records with their sequence"):
        session.execute_ddl(_BY_RANGES)
        rows = session.fetch(look, kept=kept)
    for name, last, position in rows:
        seen = (
            f"the next position of {layout.tables.kept} is to be {int(last) + 1}, and {int(position)} is "
            "there, as in a copy that was made without its sequence: what is delivered next would be "
            "replayed before it"
        )
        cure = f"SELECT setval({PostgresIdiom().literal(name)}, {int(position)})"
        return Finding(Level.ERROR, NEEDS["kept"].subject, seen, cure)
    return None
