"""The statements that move rows of a table of another layout into a portable outbox (see ``intake``).

:mod:`.moving` decides which rows are moved, and when.
"""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from outbox_api.base.errors import DriverError
from outbox_api.base.record import Record
from outbox_api.intake.intake import Intake
from outbox_api.intake.json_path import columns as columns_of
from outbox_api.intake.taken import held_key, take
from outbox_api.portable.by_ids import ChangeByIds, SelectByIds
from outbox_api.portable.intake_table import PRESENT, KnownTable, refusal
from outbox_api.portable.rows import bound
from outbox_api.portable.session import Session
from outbox_api.portable.sources import BEGINNING, COLUMNS, EXTRAS, quoted
from outbox_api.portable.statements import stash
from outbox_api.portable.table_idiom import TableName

_LISTED = 500
"""So many ids that are no numbers one statement lists."""

UNTOLD = None
"""Stands for the key of each row, if a scan does not tell it; no row has it, as null is the empty key."""

_LONG = 1_000
"""Of a key of more bytes only the beginning is compared: rows that begin alike wait for each other."""


class Listed(NamedTuple):
    """A row that waits in the other table.

    Attributes:
        place: What finds it: its id, or something better.
        key: Its key, as text; ``UNTOLD`` if a scan does not tell it.
        size: How many bytes are to be read of it.
    """

    place: Any
    key: str | None
    size: int


class PortableIntake(KnownTable):
    """The statements about the rows of one table, and the outbox that they are moved into.

    Args:
        session: The connection.
        intake: What to take in.
        outbox: The outbox table.
        binary: Whether the outbox keeps values as bytes.
        extras: The columns for partition and timestamp that it has.
        source: As for :class:`KnownTable`.

    Attributes:
        stash_sql: The INSERT into the outbox.
        changes: The DELETE of rows, or the UPDATE that marks them as done.

    Raises:
        DriverError: It cannot be: no such table or column (not retryable), or the database is gone.
    """

    def __init__(
        self,
        session: Session,
        intake: Intake,
        outbox: TableName,
        *,
        binary: bool,
        extras: Collection[str],
        source: TableName | None = None,
    ) -> None:
        super().__init__(session, intake, source)
        self._binary = binary
        self._outbox = quoted(session.idiom, outbox)
        self._bind: Callable[[Record], object] = partial(bound, session.idiom)
        self._look(extras)
        self._columns = (*COLUMNS[1:], *(name for name in EXTRAS if name in extras))
        self.stash_sql = stash(session.idiom, self._outbox, {column: column for column in self._columns})
        self.changes, self._done = self._change()
        self._key = self._key_text()

    @property
    def tells_keys(self) -> bool:
        """Whether a scan tells the keys of rows; it does not if they are made of parts of columns."""
        return self._intake.key in self._intake.columns

    # --- what a dialect may know better -------------------------------------------------------------

    @property
    def _place(self) -> str:
        """What is read as a row's place."""
        return self._name(self._intake.id)

    @property
    def _order(self) -> str:
        names = (self._intake.order, self._intake.id)
        return ", ".join(dict.fromkeys(self._name(name) for name in names if name))

    def _fetch_at(
        self, columns: str, source: str, places: Sequence[Any], lock: str = ""
    ) -> Iterator[Sequence[Any]]:
        """Fetches rows by their places, without those that are no longer to be taken in."""
        also, given = self.condition
        # Numbers become part of the statement, so each must be one.
        if all(isinstance(place, int) for place in places):
            query = SelectByIds(columns, source, also, suffix=lock, id_column=self._place)
            yield from self.session.fetch_by_ids(query, places, **given)
            return
        also = f" AND {also}" if also else ""
        for condition, values in self._listed(places):
            select = f"SELECT {columns} FROM {source} WHERE {condition}{also}{lock}"
            yield from self.session.fetch(select, **values, **given)

    def _change_at(self, places: Sequence[Any]) -> int:
        """Deletes rows by their places, or marks them as done; returns how many."""
        if all(isinstance(place, int) for place in places):
            return self.session.execute_by_ids(self.changes, places, **self._done)
        return sum(
            self.session.execute(self.changes.sql_of(condition), **values, **self._done)
            for condition, values in self._listed(places)
        )

    def _waiting_still(self, places: Sequence[Any]) -> int:
        """Returns how many rows are still to be taken in, though they were marked as done."""
        return len(self.there(places)) if self.changes.assignments else 0

    def _listed(self, places: Sequence[Any]) -> Iterator[tuple[str, Mapping[str, object]]]:
        for start in range(0, len(places), _LISTED):
            listed = {f"key{number}": key for number, key in enumerate(places[start : start + _LISTED])}
            yield f"{self._place} IN ({', '.join(f'{{{name}}}' for name in listed)})", listed

    def _found_in(self) -> str:
        """Writes the table where rows are found by their places."""
        return self._source

    def _array(self, texts: Sequence[str | None]) -> object:
        """Makes the parameter for names or values of headers."""
        return self.session.idiom.header_parameter(texts)

    def holders(self, places: Sequence[Any]) -> str:  # noqa: ARG002 - for databases that tell
        """Returns who has locked rows, in words; empty where that is not known."""
        return ""

    # --- what is done -------------------------------------------------------------------------------

    def scan(self, most: int, without: Collection[str | None]) -> list[Listed]:
        """Returns the earliest rows that wait, in their order; reads none of their content but the key.

        Args:
            most: How many at most.
            without: Keys to leave out.
        """
        session = self.session
        with session.transaction(f"look for rows of table {self.table}", reads=True):
            sql, values = self._scan(without)
            rows = session.fetch(sql, limit=most, **values)
        key_of = _key if self.tells_keys else lambda _: UNTOLD
        return [Listed(place, key_of(key), int(size)) for place, key, size in rows]

    def _scan(self, without: Collection[str | None]) -> tuple[str, Mapping[str, object]]:
        idiom = self.session.idiom
        conditions, values = [self.condition.sql] if self.condition.sql else [], {**self.condition.values}
        if self.tells_keys and (keys := [key for key in without if key is not UNTOLD]):
            condition, given = idiom.not_in(self._key, keys)
            conditions.append(condition)
            values |= given
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sizes = " + ".join(f"COALESCE({idiom.size_of(self._read(each))}, 0)" for each in self._sized())
        return idiom.limit(
            # A column of one of these names would be shadowed where rows are put in order.
            f"SELECT {self._place}, {self._key} AS {self._name('key in outbox')},"
            f" {sizes} AS {self._name('size in outbox')}"
            f" FROM {idiom.snapshot_read(self._source)}{where} ORDER BY {self._order}",
            "{limit}",
        ), values

    def _key_text(self) -> str:
        idiom, intake = self.session.idiom, self._intake
        if not self.tells_keys:
            return "''"
        text = idiom.as_text(self._name(intake.key))
        short = f"CASE WHEN {idiom.size_of(text)} > {_LONG} THEN {idiom.beginning(text, BEGINNING)}"
        return f"COALESCE({short} ELSE {text} END, '')"

    def _sized(self) -> list[str]:
        intake = self._intake
        short = {intake.id, intake.order, intake.partition, intake.timestamp}
        return [name for name in intake.columns if name not in short] or [intake.value_column]

    def free(self, places: Sequence[Any]) -> dict[Any, Mapping[str, object]]:
        """Locks rows that others have not, and returns their places and what becomes of them.

        A database that cannot leave them out waits. Of rows with one id none can be moved.
        """
        hint, lock = self.session.idiom.free_rows
        names = self._intake.columns
        columns = ", ".join((self._place, *map(self._read, names)))
        rows = list(self._fetch_at(columns, f"{self._found_in()}{hint}", places, lock))
        found = {place: self._values(self._content(names, row)) for place, *row in rows}
        if more := len(rows) - len(found):
            raise DriverError(f"{more} rows of table {self.table} have the id of another", retryable=False)
        return found

    def there(self, places: Sequence[Any]) -> dict[Any, tuple[str, str | None]]:
        """Returns place → id of rows that are still there, locked or not; and key, unless a scan tells it."""
        names = [] if self.tells_keys else columns_of(self._intake.key)
        columns = ", ".join((self._place, self._name(self._intake.id), *map(self._read, names)))
        found = self._fetch_at(columns, self.session.idiom.snapshot_read(self._source), places)
        return {place: (str(number), self._held_key(names, row)) for place, number, *row in found}

    def _held_key(self, names: Sequence[str], row: Sequence[Any]) -> str | None:
        return held_key(self._intake, self._content(names, row), self._bind) if names else UNTOLD

    def stash(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Writes what has become of rows into the outbox."""
        self.session.execute_many(self.stash_sql, rows)

    def remove(self, places: Sequence[Any]) -> None:
        """Deletes rows, or marks them as done.

        Raises:
            DriverError: Not as many as there are places, or some wait as before (not retryable).
        """
        if (removed := self._change_at(places) - self._waiting_still(places)) != len(places):
            what = "be done" if self.changes.assignments else "be removed"
            reason = f"of {len(places)} rows that were read {removed} would {what}; see its triggers"
            raise refusal(self._intake, reason)

    def statements(self, ids: str) -> dict[str, str]:
        """Returns what is sent, for rows whose ids are numbers, by a name for each.

        Args:
            ids: A list of ids as the session writes it.
        """
        hint, lock = self.session.idiom.free_rows
        source = f"{self._source}{hint}"
        return {
            "scan": self._scan(["a"])[0],
            "free": SelectByIds(self._place, source, self.condition.sql, lock, self._place).sql(ids),
            "stash": self.stash_sql,
            "remove": self.session.idiom.change_by_ids(self.changes, ids),
        }

    def trials(self) -> list[tuple[str, str, Mapping[str, object]]]:
        """Returns rights beside SELECT, each with a statement that needs it and changes no row."""
        filled = () if self.session.idiom.fills_create_time else ("create_time",)
        columns, nothing = ", ".join((*filled, *self._columns)), f"FROM {self._outbox} WHERE 1 = 0"
        right = f"UPDATE ({', '.join(self._intake.done)})" if self._done else "DELETE"
        return [
            (
                f"INSERT ({columns}) ON {self._outbox}",
                f"INSERT INTO {self._outbox} ({columns}) SELECT {columns} {nothing}",
                {},
            ),
            (f"{right} ON {self._source}", self.changes.sql_of("1 = 0"), self._done),
        ]

    def _change(self) -> tuple[ChangeByIds, Mapping[str, object]]:
        given = {
            f"done{number}": self.session.idiom.truth(value) if isinstance(value, bool) else value
            for number, value in enumerate(self._intake.done.values())
        }
        assigned = [
            f"{self._name(column)} = {self.session.idiom.now if value == PRESENT else f'{{{name}}}'}"
            for name, (column, value) in zip(given, self._intake.done.items(), strict=True)
        ]
        values = {name: value for name, value in given.items() if value != PRESENT}
        return ChangeByIds(self._source, ", ".join(assigned), id_column=self._place), values

    def _values(self, row: Mapping[str, Any]) -> Mapping[str, object]:
        taken = take(self._intake, row, binary=self._binary, bind=self._bind)
        value = self.session.idiom.value_parameter(taken.value)
        headers = (self._array(taken.names), self._array(taken.values))
        values = (taken.topic, taken.key, value, *headers, taken.partition, taken.timestamp_ms)
        found = dict(zip((*COLUMNS[1:], *EXTRAS), values, strict=True))
        return {column: found[column] for column in self._columns}


def _key(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="backslashreplace")
    return "" if value is None else str(value)
