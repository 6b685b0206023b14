"""The intake: a table of another layout, whose rows are moved into the outbox before they are marked.

A table that was made for some other tool, or for an application's own publisher, lacks what a harvest needs:
a number that gives the order, and room for a mark. It stays as it is. The leader moves its rows into the
outbox, in their order, in transactions that delete them there and stash them here; from then on they are
records like any other. Who reads the other table sees rows vanish, as after any harvest.

This module says what the columns mean, :mod:`outbox_api.intake.taken` what becomes of a row. Dialects do the
moving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import cache
from string import Formatter
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from outbox_api.base.errors import ConfigError
from outbox_api.intake.json_path import Member, columns, members_of
from outbox_api.intake.layouts import LAYOUTS

Value = str | bool | None
"""What a column is compared with, or set to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A table to take rows in from, and what its columns mean.

    A *reference* is a column, a member of the JSON in one (``payload->customer.id``), or several of these
    with ``|`` between, of which the first that is not null counts.

    Attributes:
        table: The table, optionally with its schema.
        layout: A layout that is known by name, whose columns the other keys replace: see ``LAYOUTS``.
        id: The column that tells rows apart; unique.
        order: The column whose order is that of the records within a key. Default: ``id`` if it is a whole
            number; else the order of commits, where the database can tell it.
        topic: The topic, with references in braces: ``outbox.event.{aggregatetype}``.
        key: The key, a reference; null is the empty key.
        value: The column with the value, or one member of it: text, JSON, or bytes; null is a tombstone.
        headers: Header → reference. A null leaves the header's value out.
        headers_json: The column with more headers, or one member of it: a JSON object of texts.
        header_names: A column with the names of more headers, a list.
        header_values: A column with their values, a list of the same length.
        partition: The column with the partition; null leaves the choice to the publisher.
        timestamp: The column with the message's timestamp: a moment, or milliseconds since the epoch.
        zone: Where times in columns without a zone were written, by its name in the IANA's list.
        where: Column → value, or values, of the rows that are taken in; ``None`` is null. All must hold.
        done: Column → value that says of a row that it was taken in: it is written instead of deleting the
            row, which is not taken in again. ``now()`` is the database's present time.
    """

    table: str
    layout: str | None = None
    id: str = ""
    order: str = ""
    topic: str = ""
    key: str = ""
    value: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_json: str = ""
    header_names: str = ""
    header_values: str = ""
    partition: str = ""
    timestamp: str = ""
    zone: str = "UTC"
    where: Mapping[str, Value | Sequence[Value]] = field(default_factory=dict)
    done: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.layout is not None and self.layout not in LAYOUTS:
            raise ConfigError(f"layout is '{self.layout}'; known by name: {', '.join(LAYOUTS)}")
        for name, column in LAYOUTS.get(self.layout or "", {}).items():
            if not getattr(self, name):
                object.__setattr__(self, name, column)
        missing = [name for name in ("id", "topic", "key", "value") if not getattr(self, name)]
        if missing:
            layout = f"; layout '{self.layout}' has none" if self.layout else ", or a layout"
            raise ConfigError(f"intake of table '{self.table}' needs {', '.join(missing)}{layout}")
        if bool(self.header_names) != bool(self.header_values):
            raise ConfigError("headerNames and headerValues need each other")
        self._require_references()
        _zone(self.zone)

    @property
    def columns(self) -> list[str]:
        """The columns that are read, each once, in a fixed order."""
        named = columns(*(name for _, name in parts(self.topic) if name))
        of_value = columns(self.key, self.value, *self.headers.values(), self.headers_json)
        others = (self.header_names, self.header_values, self.partition, self.timestamp)
        every = (self.id, self.order, *named, *of_value, *others)
        return [column for column in dict.fromkeys(every) if column]

    @property
    def value_column(self) -> str:
        """The column that the value is in."""
        return members_of(self.value)[0].column

    @property
    def tz(self) -> tzinfo:
        """The zone of times without one."""
        return _zone(self.zone)

    def _require_references(self) -> None:
        try:
            named = [name for _, name in parts(self.topic) if name]
        except ValueError as error:
            raise ConfigError(f"topic is '{self.topic}': {error}; write a column in braces") from error
        for name, several in (("topic", named), ("key", [self.key]), ("headers", self.headers.values())):
            for reference in several:
                _require(name, reference)
        for name, reference in (("value", self.value), ("headersJson", self.headers_json)):
            if reference and len(_require(name, reference)) > 1:
                raise ConfigError(f"{name} is '{reference}'; write one column, or a member of one")


@cache
def parts(topic: str) -> list[tuple[str, str | None]]:
    """Reads a template once: text, and what stands in the braces behind it, ``None`` behind the last.

    Raises:
        ValueError: It is malformed, or asks for a way to write a column that no topic knows.
    """
    found = []
    for literal, name, form, conversion in Formatter().parse(topic):
        if name is not None and (not name or form or conversion):
            shown = f"{{{name}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}}}"
            raise ValueError(f"'{shown}' is not a column in braces")
        if name and literal.endswith("$"):
            raise ValueError(f"'${{{name}}}' is the way of another tool")
        found.append((literal, name))
    return found


def _require(name: str, reference: str) -> tuple[Member, ...]:
    try:
        return members_of(reference)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


@cache
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ConfigError(
            f"zone is '{name}', which this machine does not know; write a name such as Europe/Berlin"
        ) from error
