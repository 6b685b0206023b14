"""The tables of a portable outbox: their columns, and the conditions by which rows are taken from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from outbox_api.portable.idiom import Idiom
from outbox_api.portable.table_idiom import TableName
from outbox_api.seams.affinity import ColumnIs


@dataclass(frozen=True, slots=True)
class Source:
    """One condition in the words of an idiom.

    Attributes:
        condition: What must hold for a row; empty for every row.
        column: The column that the condition compares with a value, quoted; empty if it compares none.
        index: The index to read by, quoted; empty for that of ids.
        ripe: An expression that is 1 for a row which is old enough and 0 for one at which rows end; empty
            where age does not matter.
        values: The parameters of ``condition`` and ``ripe``.
    """

    condition: str = ""
    column: str = ""
    index: str = ""
    ripe: str = ""
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def order(self) -> str:
        """What stands behind ``ORDER BY``: the order of ids, for its rows, in the words of its index."""
        return f"{self.column}, id" if self.index else "id"


def sources(idiom: Idiom, eligible: Sequence[ColumnIs], indexes: Mapping[str, str]) -> list[Source]:
    """Makes a source of each condition; without conditions, the one source of all rows."""
    return [_source(idiom, condition, indexes) for condition in eligible] or [Source()]


def _source(idiom: Idiom, condition: ColumnIs, indexes: Mapping[str, str]) -> Source:
    column = quoted(idiom, TableName("", condition.column))
    index = indexes.get(condition.column, "")
    return Source(
        condition=idiom.equals_by_index(column, "{eligible}") if index else f"{column} = {{eligible}}",
        column=column,
        index=quoted(idiom, TableName("", index)) if index else "",
        ripe=_ripe(idiom, condition),
        values={"eligible": condition.value, "ripe_age": condition.older_than},
    )


def _ripe(idiom: Idiom, condition: ColumnIs) -> str:
    if condition.older_than <= 0:
        return ""
    since = "create_time"
    if condition.since != since:
        # Rows that were there before the column have no time of arrival.
        since = f"COALESCE({quoted(idiom, TableName('', condition.since))}, {since})"
    return f"CASE WHEN {idiom.age_seconds(since)} >= {{ripe_age}} THEN 1 ELSE 0 END"


def quoted(idiom: Idiom, table: TableName) -> str:
    """Returns a table's name as it stands in a statement."""
    return idiom.quote_table(table).replace("{", "{{").replace("}", "}}")


COLUMNS = ("id", "kafka_topic", "kafka_key", "kafka_value", "kafka_header_keys", "kafka_header_values")
"""What is read of a row; in portable outboxes headers are two JSON arrays of equal length, or null."""

EXTRAS = ("kafka_partition", "kafka_timestamp")
"""Columns that tell partition and timestamp (milliseconds). An outbox may have one of them, or both."""


def read_extras(found: Collection[str]) -> tuple[str, ...]:
    """Returns what is read of ``EXTRAS``: null for a column that an outbox lacks; nothing if it has none."""
    names = tuple(name if name in found else f"NULL AS {name}" for name in EXTRAS)
    return () if set(EXTRAS).isdisjoint(found) else names


BEGINNING = 250
"""How many characters of such a topic or key are read. Rows that begin alike are treated as rows of one key,
which does no harm: none of them is ever sent."""

OUTBOX_COLUMNS = (*COLUMNS, "create_time", "leader_id")

# Of each table beside the outbox: column → its type, whose parts ``tables.created`` fills in. A column that
# may hold an empty text may be null, since an empty text is null in some databases.
_NAME = "{text[300]} NOT NULL"
_NUMBER = "{number} NOT NULL"
_TIME = "{time} NOT NULL"

FENCE_COLUMNS = {
    "name": _NAME,
    "lane": _NUMBER,
    "lanes": _NUMBER,
    "token": _NUMBER,
    "epoch": _NUMBER,
    "holder": "{text[1000]}",
    "since": _TIME,
    "heartbeat_at": "{time}",
    "metrics": "{long_text} NOT NULL",
    "transacting": _NUMBER,
    "identity": "{text[64]} NOT NULL",
    "sender": "{short_text}",
    "location": "{short_text}",
}
"""The fence has one row for each lane of each outbox."""

NOTE_COLUMNS = {
    "name": _NAME,
    "identity": "{text[64]}",
    "version": "{number}",
    "oldest": "{number}",
    "noted_by": "{text[300]}",
    "noted_at": "{time}",
    "takeovers": "{long_text}",
    "pauses": "{long_text}",
}
"""What is noted of each outbox: its identity, the version of its tables, takeovers and pauses under way."""

LEASE_COLUMNS = {
    "name": _NAME,
    "holder": "{text[1000]}",
    "term": _NUMBER,
    "length_ms": _NUMBER,
    "renewed_at": _TIME,
}
"""The lease of each outbox, see :mod:`outbox_api.seams.lease`; one that was released has no holder."""

MEMBER_COLUMNS = {
    "member": _NAME,
    "member_group": "{text[256]}",
    "leads": "{number}",
    "about": "{long_text}",
    "seen_at": _TIME,
}
"""The processes that harvest; one that has left leads null. ``about`` is JSON: what it says of itself."""

DEAD_LETTER_COLUMNS = {
    "name": _NAME,
    "id": _NUMBER,
    "kafka_topic": "{long_text}",
    "kafka_key": "{key}",
    "kafka_value": "{bytes}",
    "kafka_header_keys": "{long_text}",
    "kafka_header_values": "{long_text}",
    "status": "{text[10]} NOT NULL",
    "reason": "{long_text}",
    "attempts": _NUMBER,
    "since": _TIME,
}
"""They can hold every row that an outbox can hold, faulty ones included."""

JOURNAL_TEXTS = {"operator": 400, "via": 40, "verb": 160, "subject": 2000, "reason": 2000, "outcome": 2000}
"""The texts of a journal, the fields of an ``Action`` and the outcome, with the bytes of UTF-8 of each."""

JOURNAL_COLUMNS = {
    "name": _NAME,
    "id": "{text[36]} NOT NULL",
    "begun": "{time} DEFAULT ({now}) NOT NULL",
    "ended": "{time}",  # an empty outcome may be null, so this tells whether there is one
    **{column: f"{{text[{size}]}}" for column, size in JOURNAL_TEXTS.items()},
}

HISTORY_COLUMNS = {
    "name": _NAME,
    "slot": _NUMBER,
    "epoch_minute": _NUMBER,
    "figures": "{long_text} NOT NULL",
}
"""What was seen of each outbox in each minute of the last day. ``slot`` is the minute modulo a day;
``figures`` is JSON without anything of keys and values."""

JOURNAL_INDEX = ("name", "begun", "id")
"""The columns of the journal's index, by which the last entries of an outbox are found."""

KEPT_COLUMNS = {
    "position": "{numbered}",
    "delivered_at": _TIME,
    "token": _NUMBER,
    "key_hash": _NUMBER,
    "lacks": _NUMBER,
    "id": _NUMBER,
    "create_time": "{time}",
    "kafka_topic": "{long_text}",
    "kafka_key": "{long_text}",
    "kafka_value": "{long_text}",
    "kafka_header_keys": "{long_text}",
    "kafka_header_values": "{long_text}",
    **dict.fromkeys(EXTRAS, "{number}"),
}
"""The kept records of one outbox. ``position`` rises with each: its order is that of the deliveries within a
key, whatever ids and clocks do. ``delivered_at`` is the time of the purge, ``token`` the fence token of the
leader that purged. ``lacks`` is the sum of 1 if the value was left out, 2 if the headers were, and 4 if the
record was not delivered but superseded."""
