"""Kept records: rows that a purge moves into a table beside the outbox, where the option ``keep`` says so.

The purge's own statement or transaction moves them, so a row is either in the outbox or kept. Whatever purges
does it: both deliveries, recoveries, and the Spark source. Superseded records are kept, too, and marked so.
A record that an operator skips was not delivered, and is not kept.
"""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter or a literal of its own

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from outbox_api.base.errors import ConfigError
from outbox_api.portable.by_ids import ChangeByIds
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.partitions import Session
from outbox_api.portable.sources import COLUMNS, EXTRAS, KEPT_COLUMNS, quoted
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import Tables, created
from outbox_api.seams.hooks import Duration

_KEY_HASHES = 2**31 - 1
"""How many hashes of keys there are: the number of lanes that the hash of a lane is asked for."""

SUPERSEDED = 4
"""What the column ``lacks`` has in addition of a record that was superseded: the delivery."""

PARTS = {"value": ("kafka_value",), "headers": ("kafka_header_keys", "kafka_header_values")}
"""What can be left out of a kept record → its columns."""

_BYTES = re.compile(r"bytea|(tiny|medium|long)?blob|(var)?binary|(long )?raw|image", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Which delivered records are kept, for how long, and what of them.

    Attributes:
        for_: How long, in seconds; as the key ``for``.
        topics: The topics whose records are kept, with ``*`` and ``?`` as wildcards.
        without: What is left out of them: ``value``, ``headers``, or both.
    """

    for_: Duration
    topics: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.for_ <= 0:
            raise ConfigError(f"for is {self.for_} s; it must be more than 0 s")
        if unknown := sorted(set(self.without).difference(PARTS)):
            raise ConfigError(f"without names '{unknown[0]}'; it can name {' and '.join(PARTS)}")
        if not self.topics:
            raise ConfigError("topics is empty, so nothing would be kept; leave out 'keep' instead")

    @property
    def lacks(self) -> int:
        """The column of the same name."""
        return sum(1 << place for place, part in enumerate(PARTS) if part in self.without)


def holds_bytes(session: Session, idiom: Idiom, table: TableName) -> bool | None:
    """Returns whether the values of a table are bytes; ``None`` if it is not there."""
    rows = session.query(f"look at the columns of {table}", idiom.types, **idiom.place(table))
    types = [str(row[1]) for row in rows if str(row[0]).lower() == "kafka_value"]
    return bool(_BYTES.match(types[0])) if types else None


def kept_statements(idiom: Idiom, tables: Tables, *, binary: bool) -> Sequence[str]:
    """Returns the statements that create the table of kept records."""
    columns = {**KEPT_COLUMNS, **({"kafka_value": "{bytes}"} if binary else {}), **idiom.kept_types}
    parts = idiom.partitions
    key = "" if "PRIMARY KEY" in idiom.numbered_type else "position"
    table = created(idiom, tables.kept, columns, parts.key if parts else key)
    times = [idiom.create_index(tables.kept, ("delivered_at",))] if not parts or parts.order else []
    return [
        table + (parts.clause("delivered_at") if parts else ""),
        *times,
        *(parts.beside(tables.kept) if parts else ()),
    ]


def copying(
    idiom: Idiom, tables: Tables, keep: Keep, extras: Collection[str], *, source: str, lacks: int = 0
) -> str:
    """Makes the INSERT … SELECT that keeps rows, up to what stands behind its ``WHERE … AND``.

    Its parameter ``{token}`` is the fence's token.

    Args:
        idiom: How the database writes SQL.
        tables: The tables of the outbox.
        keep: Which rows are kept, and what of them.
        extras: The columns for partition and timestamp that the outbox has.
        source: Where the rows are read, as it stands behind ``FROM``.
        lacks: What they lack in addition, see the column.
    """
    left_out = {column for part in keep.without for column in PARTS[part]}
    names = ("create_time", *COLUMNS, *(name for name in EXTRAS if name in extras))
    values = ["NULL" if name in left_out else name for name in names]
    hashed = key_hash(idiom, idiom.comparable("COALESCE(kafka_key, '')"))
    return (
        f"INSERT INTO {quoted(idiom, tables.kept)} (delivered_at, token, key_hash, lacks, {', '.join(names)})"
        f" SELECT {idiom.now}, {{token}}, {hashed}, {keep.lacks | lacks}, {', '.join(values)}"
        f" FROM {source} WHERE {chosen_topics(idiom, keep.topics)}"
    )


def of_positions(idiom: Idiom, kept: str, condition: str = "") -> ChangeByIds:
    """Makes the change that deletes kept records by their positions.

    Args:
        idiom: How the database writes SQL.
        kept: The table, quoted.
        condition: What else must hold; empty for nothing.
    """
    ranged = bool(idiom.partitions and idiom.partitions.window)
    return ChangeByIds(kept, condition=condition, id_column="position", index=idiom.id_index, ranged=ranged)


def key_hash(idiom: Idiom, key: str) -> str:
    """Writes what ``key_hash`` holds of a key, given as :meth:`Idiom.comparable` writes it."""
    return idiom.lane_of(key).replace("{lanes}", str(_KEY_HASHES))


def chosen_topics(idiom: Idiom, topics: Sequence[str]) -> str:
    """Makes the condition that a row's topic matches one of the patterns."""
    if "*" in topics:
        return "1 = 1"
    matching = " OR ".join(idiom.matches("kafka_topic", pattern) for pattern in topics)
    return f"({matching})".replace("{", "{{").replace("}", "}}")
