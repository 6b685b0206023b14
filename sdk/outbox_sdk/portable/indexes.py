"""Which indexes a table has, as far as its database can tell."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.session import Session


def find_index(session: Session, table: TableName, columns: Sequence[str]) -> str:
    """Returns the name of an index that begins with ``columns``; empty if there is none, or nobody can tell.

    Args:
        session: The connection.
        table: The table, which exists.
        columns: Their names, in the order of the index; case is ignored.
    """
    idiom = session.idiom
    if not idiom.indexes:
        return ""
    found: dict[str, list[str]] = {}
    for name, indexed in session.query("look at the indexes", idiom.indexes, **idiom.place(table)):
        found.setdefault(str(name), []).append(str(indexed).lower())
    wanted = [column.lower() for column in columns]
    return next((name for name, listed in found.items() if listed[: len(wanted)] == wanted), "")
