"""The tables beside an outbox: which there are, and the statements that create them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outbox_api.portable.idiom import Idiom
from outbox_api.portable.sources import (
    DEAD_LETTER_COLUMNS,
    FENCE_COLUMNS,
    JOURNAL_COLUMNS,
    JOURNAL_INDEX,
    JOURNAL_TEXTS,
    LEASE_COLUMNS,
    MEMBER_COLUMNS,
    NOTE_COLUMNS,
    OUTBOX_COLUMNS,
)
from outbox_api.portable.table_idiom import TableName

_NAME = 300
_ID = 36
_IDENTITY = 64
_HOLDER = 1000
_GROUP = 256
_STATUS = 10
_STATUSES = "CHECK (status IN ('parked', 'skipped'))"


class Tables(NamedTuple):
    """The tables of an outbox, each with its schema as far as it is known."""

    outbox: TableName
    fence: TableName
    notes: TableName
    lease: TableName
    members: TableName
    dead_letters: TableName
    journal: TableName

    @classmethod
    def beside(
        cls, fence: TableName, *, outbox: TableName, dead_letters: TableName, journal: TableName
    ) -> Tables:
        """Returns the tables of an outbox; some have the fence's name with a suffix."""
        notes, lease, members = (fence.suffixed(each) for each in ("_notes", "_lease", "_members"))
        return cls(outbox, fence, notes, lease, members, dead_letters, journal)


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
    columns: Sequence[str]
    privileges: Sequence[str] = ("SELECT", "INSERT", "UPDATE")


_EVERY = ("SELECT", "INSERT", "UPDATE", "DELETE")
NEEDS = {
    "outbox": Need("outbox table", "outboxTable", OUTBOX_COLUMNS, ("SELECT", "UPDATE", "DELETE")),
    "fence": Need("fence table", "fenceTable", FENCE_COLUMNS),
    "notes": Need("table of notes", "fenceTable", NOTE_COLUMNS),
    "lease": Need("lease table", "fenceTable", LEASE_COLUMNS),
    "members": Need("member table", "fenceTable", MEMBER_COLUMNS),
    "dead_letters": Need("dead-letter table", "deadLetterTable", DEAD_LETTER_COLUMNS, _EVERY),
    "journal": Need("journal table", "journalTable", JOURNAL_COLUMNS),
}
"""Table, by its name in ``Tables`` → what is asked of it."""

HARVESTED = ("outbox", "fence", "notes", "dead_letters")
"""The tables that every harvester needs."""


def auxiliary_statements(idiom: Idiom, tables: Tables) -> Mapping[TableName, Sequence[str]]:
    """Returns the statements that create the tables beside the outbox, by table, in the order of ``Tables``.

    A column that may hold an empty text may be null, since an empty text is null in some databases.
    """
    number, time, text = idiom.integer_type, idiom.time_type(), idiom.long_text_type
    name = f"{idiom.text_type(_NAME)} NOT NULL"
    identity = idiom.quote("identity")  # a word of its own in some databases
    fence = {
        "name": name,
        "lane": f"{number} NOT NULL",
        "lanes": f"{number} NOT NULL",
        "token": f"{number} NOT NULL",
        "epoch": f"{number} NOT NULL",
        "holder": idiom.text_type(_HOLDER),
        "since": f"{time} NOT NULL",
        "heartbeat_at": time,
        "metrics": f"{text} NOT NULL",
        "transacting": f"{number} NOT NULL",
        identity: f"{idiom.text_type(_IDENTITY)} NOT NULL",
        "sender": idiom.short_text_type,
        "location": idiom.short_text_type,
    }
    notes = {
        "name": name,
        identity: idiom.text_type(_IDENTITY),
        "version": number,
        "oldest": number,
        "noted_by": idiom.text_type(_NAME),
        "noted_at": time,
        "takeovers": text,
    }
    lease = {
        "name": name,
        "holder": idiom.text_type(_HOLDER),
        "term": f"{number} NOT NULL",
        "length_ms": f"{number} NOT NULL",
        "renewed_at": f"{time} NOT NULL",
    }
    members = {
        "member": name,
        "member_group": idiom.text_type(_GROUP),
        "leads": number,
        "seen_at": f"{time} NOT NULL",
    }
    journal = {
        "name": name,
        "id": f"{idiom.text_type(_ID)} NOT NULL",
        "begun": f"{time} DEFAULT ({idiom.now}) NOT NULL",
        "ended": time,  # an empty outcome may be null, so this tells whether there is one
        **{column: idiom.text_type(size) for column, size in JOURNAL_TEXTS.items()},
    }
    return {
        tables.fence: [created(idiom, tables.fence, fence, "name, lane")],
        tables.notes: [created(idiom, tables.notes, notes, "name")],
        tables.lease: [created(idiom, tables.lease, lease, "name")],
        tables.members: [created(idiom, tables.members, members, "member")],
        tables.dead_letters: [
            created(idiom, tables.dead_letters, _dead_letters(idiom), "name, id", _STATUSES)
        ],
        tables.journal: [
            created(idiom, tables.journal, journal, "name, id"),
            idiom.create_index(tables.journal, JOURNAL_INDEX),
        ],
    }


def _dead_letters(idiom: Idiom) -> dict[str, str]:
    """Returns columns that can hold every row that an outbox can hold, faulty ones included."""
    number, text = idiom.integer_type, idiom.long_text_type
    return {
        "name": f"{idiom.text_type(_NAME)} NOT NULL",
        "id": f"{number} NOT NULL",
        "kafka_topic": text,
        "kafka_key": idiom.key_type,
        "kafka_value": idiom.bytes_type,
        "kafka_header_keys": text,
        "kafka_header_values": text,
        "status": f"{idiom.text_type(_STATUS)} NOT NULL",
        "reason": text,
        "attempts": f"{number} NOT NULL",
        "since": f"{idiom.time_type()} NOT NULL",
    }


def created(idiom: Idiom, table: TableName, columns: Mapping[str, str], key: str, *checks: str) -> str:
    """Returns the statement that creates a table."""
    lines = [*(f"{name} {type_}" for name, type_ in columns.items()), f"PRIMARY KEY ({key})", *checks]
    listed = ",\n".join(f"    {line}" for line in lines)
    return f"CREATE TABLE {idiom.quote_table(table)} (\n{listed}\n){idiom.table_end}"
