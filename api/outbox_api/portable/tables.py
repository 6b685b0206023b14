"""The tables beside an outbox: which there are, and the statements that create them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from outbox_api.portable.idiom import Idiom
from outbox_api.portable.sources import (
    DEAD_LETTER_COLUMNS,
    FENCE_COLUMNS,
    HISTORY_COLUMNS,
    JOURNAL_COLUMNS,
    JOURNAL_INDEX,
    KEPT_COLUMNS,
    LEASE_COLUMNS,
    MEMBER_COLUMNS,
    NOTE_COLUMNS,
    OUTBOX_COLUMNS,
)
from outbox_api.portable.table_idiom import TableName

DEAD_LETTER_CHECK = "CHECK (status IN ('parked', 'skipped'))"


class Tables(NamedTuple):
    """The tables of an outbox, each with its schema as far as it is known."""

    outbox: TableName
    fence: TableName
    notes: TableName
    lease: TableName
    members: TableName
    dead_letters: TableName
    journal: TableName
    history: TableName
    kept: TableName

    @property
    def name(self) -> str:
        """The name by which the tables beside the outbox know it."""
        return self.outbox.unquoted

    @classmethod
    def beside(
        cls, fence: TableName, *, outbox: TableName, dead_letters: TableName, journal: TableName
    ) -> Tables:
        """Returns the tables of an outbox; some have its name, or the fence's, with a suffix."""
        notes, lease, members = (fence.suffixed(each) for each in ("_notes", "_lease", "_members"))
        history, kept = fence.suffixed("_history"), outbox.suffixed("_kept")
        return cls(outbox, fence, notes, lease, members, dead_letters, journal, history, kept)


class Need(NamedTuple):
    """What is asked of a table.

    Attributes:
        subject: What messages call it.
        option: The option that names it.
        columns: Its columns, in any order.
        privileges: What a harvester's user must be permitted; with the journal, an operator's.
    """

    subject: str
    option: str
    columns: Collection[str]
    privileges: Sequence[str] = ("SELECT", "INSERT", "UPDATE")

    @property
    def instead(self) -> str:
        """What to do with a table that lacks columns, unless it is to go."""
        return "add the columns" if self.option == "keep" else f"set {self.option} to another name"


_EVERY = ("SELECT", "INSERT", "UPDATE", "DELETE")
NEEDS = {
    "outbox": Need("outbox table", "outboxTable", OUTBOX_COLUMNS, ("SELECT", "UPDATE", "DELETE")),
    "fence": Need("fence table", "fenceTable", FENCE_COLUMNS),
    "notes": Need("table of notes", "fenceTable", NOTE_COLUMNS),
    "lease": Need("lease table", "fenceTable", LEASE_COLUMNS),
    "members": Need("member table", "fenceTable", MEMBER_COLUMNS),
    "dead_letters": Need("dead-letter table", "deadLetterTable", DEAD_LETTER_COLUMNS, _EVERY),
    "journal": Need("journal table", "journalTable", JOURNAL_COLUMNS),
    "history": Need("history table", "fenceTable", HISTORY_COLUMNS),
    "kept": Need("table of kept records", "keep", KEPT_COLUMNS, ("SELECT", "INSERT", "DELETE")),
}
"""Table, by its name in ``Tables`` → what is asked of it."""

HARVESTED = ("outbox", "fence", "notes", "dead_letters")
"""The tables that every harvester needs."""
OPERATED = ("journal", "history")
"""The tables for operators: harvesters run on without them."""


def auxiliary_statements(idiom: Idiom, tables: Tables) -> Mapping[TableName, Sequence[str]]:
    """Returns the statements that create the tables beside the outbox, in the order of ``Tables``."""
    return {
        tables.fence: [created(idiom, tables.fence, FENCE_COLUMNS, "name, lane")],
        tables.notes: [created(idiom, tables.notes, NOTE_COLUMNS, "name")],
        tables.lease: [created(idiom, tables.lease, LEASE_COLUMNS, "name")],
        tables.members: [created(idiom, tables.members, MEMBER_COLUMNS, "member")],
        tables.dead_letters: [
            created(idiom, tables.dead_letters, DEAD_LETTER_COLUMNS, "name, id", DEAD_LETTER_CHECK)
        ],
        tables.journal: [
            created(idiom, tables.journal, JOURNAL_COLUMNS, "name, id"),
            idiom.create_index(tables.journal, JOURNAL_INDEX),
        ],
        tables.history: [created(idiom, tables.history, HISTORY_COLUMNS, "name, slot")],
    }


class _Texts:
    """Types of texts, as ``text[300]`` in the type of a column."""

    def __init__(self, idiom: Idiom) -> None:
        self._idiom = idiom

    def __getitem__(self, octets: int) -> str:
        return self._idiom.text_type(octets)


def created(idiom: Idiom, table: TableName, columns: Mapping[str, str], key: str, *checks: str) -> str:
    """Returns the statement that creates a table; see ``sources`` for what types of columns are made of."""
    parts = {
        "text": _Texts(idiom),
        "short_text": idiom.short_text_type,
        "long_text": idiom.long_text_type,
        "key": idiom.key_type,
        "bytes": idiom.bytes_type,
        "number": idiom.integer_type,
        "numbered": idiom.numbered_type,
        "time": idiom.time_type(),
        "now": idiom.now,
    }
    types = {name: type_.format_map(parts) for name, type_ in columns.items()}
    if "identity" in types:  # a word of its own in some databases
        types = {idiom.quote(name) if name == "identity" else name: each for name, each in types.items()}
    keys = [f"PRIMARY KEY ({key})"] if key else []
    lines = [*(f"{name} {type_}" for name, type_ in types.items()), *keys, *checks]
    listed = ",\n".join(f"    {line}" for line in lines)
    return f"CREATE TABLE {idiom.quote_table(table)} (\n{listed}\n){idiom.table_end}"
