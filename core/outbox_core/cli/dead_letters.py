"""Shows dead letters, as data and as text."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outbox_api.base.record import MarkedRecord
from outbox_api.seams.parking import DeadLetter
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.settings.logs import KeyNames
from outbox_core.text.printable import cut_key, printable
from outbox_core.text.wording import counted, date_clock_and_zone, duration

MAX_VALUE_SHOWN = 1000
"""Characters or bytes of a value that are shown to people."""

_STYLES = {"changed": "green", "gone": "yellow"}


def as_data(letter: DeadLetter, names: KeyNames | None = None) -> dict[str, Any]:
    """Returns a letter as JSON data without headers and value; times in seconds, instants in ISO 8601."""
    record = letter.record
    return {
        "key": record.key,
        **({"key_in_logs": names.of_listed(record.key)} if names and names.hashed else {}),
        "id": record.id,
        "topic": record.topic,
        "status": str(letter.status),
        "attempts": letter.attempts,
        "since": letter.since.isoformat(),
        "age_seconds": letter.age,
        "reason": letter.reason,
    }


def as_full_data(letter: DeadLetter, names: KeyNames | None = None) -> dict[str, Any]:
    """Returns all of a letter as JSON data; bytes become ``{"base64": "…"}``."""
    record = letter.record
    return {
        **as_data(letter, names),
        **({"key_in_logs": names.of(record.key)} if names and names.hashed else {}),
        "fault": record.fault,
        **contents_as_data(record),
    }


def contents_as_data(record: MarkedRecord) -> dict[str, Any]:
    """Returns what lists leave out of a record as JSON data; bytes become ``{"base64": "…"}``."""
    return {
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
        "headers": [[name, _as_json(value)] for name, value in record.headers],
        "value": _as_json(record.value),
    }


def as_table(
    letters: Sequence[DeadLetter],
    outcomes: Mapping[int, str] | None = None,
    names: KeyNames | None = None,
) -> Table:
    """Returns letters as a table for people."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    if outcomes is not None:
        table.add_column("", no_wrap=True)
    for heading in ("key", "id", "topic", "attempts", "age", "reason"):
        right = heading in {"id", "attempts", "age"}
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    if names and names.hashed:
        table.add_column("key in logs", no_wrap=True)
    for letter in letters:
        record = letter.record
        cells: list[RenderableType] = [
            Text(cut_key(record.key)),
            str(record.id) if record.id >= 0 else f"{record.id} (reused)",
            Text(printable(record.topic)),
            f"{letter.attempts:,}",
            duration(letter.age),
            Text(printable(letter.reason)),
        ]
        if names and names.hashed:
            cells.append(names.of_listed(record.key))
        if outcomes is None:
            table.add_row(*cells)
        else:
            outcome = outcomes[record.id]
            table.add_row(Text(outcome, _STYLES.get(outcome, "")), *cells)
    return table


def as_text(letters: Sequence[DeadLetter], waiting: int) -> RenderableType:
    """Returns all letters of one key for people; long values are cut."""
    rows = f"{counted(waiting, 'row')} of this key in the outbox"
    return Group(*(_details(letter) for letter in letters), Text(rows, "dim"))


def row_as_text(row: MarkedRecord) -> RenderableType:
    """Returns a row of the outbox for people; a long value is cut."""
    fault = None if row.fault is None else printable(row.fault)
    return as_grid([*place_rows(row), *header_rows(row), ("value", shortened(row.value)), ("fault", fault)])


def _details(letter: DeadLetter) -> RenderableType:
    record = letter.record
    return Group(as_grid([*facts(letter), *header_rows(record), ("value", shortened(record.value))]), "")


Row = tuple[str, str | None]
"""A name and what is shown beside it; ``None`` leaves the row out."""


def facts(letter: DeadLetter) -> list[Row]:
    """Returns what is known of a letter but for its headers and its value, for people."""
    record = letter.record
    since = date_clock_and_zone(letter.since)
    attempts = counted(letter.attempts, "attempt")
    return [
        *place_rows(record),
        (
            str(letter.status),
            f"since {since}, {duration(letter.age)} ago, after {attempts}",
        ),
        ("reason", printable(letter.reason)),
        ("fault", None if record.fault in {None, letter.reason} else printable(str(record.fault))),
    ]


def place_rows(record: MarkedRecord) -> list[Row]:
    """Returns what identifies a record and where it goes, for people."""
    return [
        ("key", cut_key(record.key)),
        ("id", str(record.id)),
        ("topic", printable(record.topic)),
        ("partition", None if record.partition is None else str(record.partition)),
        ("timestamp", None if record.timestamp_ms is None else f"{record.timestamp_ms} ms"),
    ]


def header_rows(record: MarkedRecord) -> list[Row]:
    """Returns the headers of a record, for people; long values are cut."""
    return [("header", f"{printable(name)}: {shortened(value)}") for name, value in record.headers]


def as_grid(rows: Iterable[Row]) -> Table:
    """Returns rows for people."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, shown in rows:
        if shown is not None:
            grid.add_row(name, Text(shown))
    return grid


def _as_json(value: str | bytes | None) -> object:
    return {"base64": b64encode(value).decode("ascii")} if isinstance(value, bytes) else value


def shortened(value: str | bytes | None) -> str:
    """Returns the beginning of a value, for people."""
    if value is None:
        return "(none: a tombstone)"
    rest = len(value) - MAX_VALUE_SHOWN
    part = value[:MAX_VALUE_SHOWN]
    text = part.hex(" ") if isinstance(part, bytes) else "\n".join(map(printable, part.split("\n")))
    kind = "bytes" if isinstance(value, bytes) else "characters"
    return f"{text} … and {rest:,} more {kind}" if rest > 0 else text
