"""The statements that move rows of a table of another layout into a portable outbox (see ``intake``).

:mod:`.moving` decides which rows are moved, and when.
"""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from outbox_api.column_text import in_utc
from outbox_api.errors import DriverError
from outbox_api.finding import Level
from outbox_api.intake import Intake
from outbox_api.portable.by_ids import ChangeByIds, SelectByIds
from outbox_api.portable.column_facts import ColumnFacts
from outbox_api.portable.intake_order import Order, judge
from outbox_api.portable.rows import bound, json_array
from outbox_api.portable.session import Session
from outbox_api.portable.sources import BEGINNING, COLUMNS, EXTRAS, quoted
from outbox_api.portable.statements import stash
from outbox_api.portable.table_idiom import TableName
from outbox_api.record import Record

_LISTED = 500
"""So many ids that are no numbers one statement lists."""

_JUDGED = 100
"""So many values of a column show whether it tells an order."""

_LONG = 1_000
"""Of a key of more bytes only the beginning is compared: rows that begin alike wait for each other."""

PRESENT = "now()"
"""Stands for the database's present time, where a row is marked as done."""


class Listed(NamedTuple):
    """A row that waits in the other table.

    Attributes:
        place: What finds it: its id, or something better.
        key: Its key, as text.
        size: How many bytes are to be read of it.
    """

    place: Any
    key: str
    size: int


class Condition(NamedTuple):
    """Which rows of the other table are to be taken in, and its parameters; empty for all of them."""

    sql: str
    values: Mapping[str, object]

    @property
    def where(self) -> str:
        """What stands behind a table."""
        return f" WHERE {self.sql}" if self.sql else ""


class WaitingRows:
    """The rows of one table that are still to be taken in; no look at the table.

    Args:
        session: The connection.
        intake: The table.
        source: Its name, where that is another than the intake says.
    """

    def __init__(self, session: Session, intake: Intake, source: TableName | None = None) -> None:
        self.session = session
        self._intake = intake
        self._table = source or TableName.parse(intake.table)
        self._source = quoted(session.idiom, self._table)
        self.condition = self._condition()

    def waiting(self, most: int) -> int:
        """Returns how many rows are still to be taken in, counted up to ``most``; part of a transaction."""
        rows = f"SELECT {self._name(self._intake.id)} FROM {self._source}{self.condition.where} ORDER BY 1"
        sample = self.session.idiom.limit(rows, "{limit}")
        count = f"SELECT COUNT(*) FROM ({sample}) counted"
        return int(self.session.fetch(count, limit=most, **self.condition.values)[0][0])

    def _name(self, column: str) -> str:
        return quoted(self.session.idiom, TableName("", column))

    def _condition(self) -> Condition:
        """Makes the condition: what ``where`` says, and that a row is not done."""
        conditions, values = list[str](), dict[str, object]()

        def written(value: object) -> str:
            name = f"where{len(values)}"
            values[name] = self.session.idiom.truth(value) if isinstance(value, bool) else value
            return f"{{{name}}}"

        for column, wanted in self._intake.where.items():
            each = [wanted] if wanted is None or isinstance(wanted, str | bool) else list(wanted)
            listed = ", ".join(written(value) for value in each if value is not None)
            name = self._name(column)
            choices = [f"{name} IN ({listed})"] if listed else []
            choices += [f"{name} IS NULL"] if None in each else []
            conditions.append(f"({' OR '.join(choices)})")
        undone = [_undone(self._name(column), value, written) for column, value in self._intake.done.items()]
        conditions += [f"({' OR '.join(undone)})"] if undone else []
        return Condition(" AND ".join(conditions), values)


def _undone(name: str, value: object, written: Callable[[object], str]) -> str:
    if value is None:
        return f"{name} IS NOT NULL"
    return f"{name} IS NULL" if value == PRESENT else f"{name} IS NULL OR {name} <> {written(value)}"


class PortableIntake(WaitingRows):
    """The statements about the rows of one table, and the outbox that they are moved into.

    Args:
        session: The connection.
        intake: What to take in.
        outbox: The outbox table.
        binary: Whether the outbox keeps values as bytes.
        extras: The columns for partition and timestamp that it has.
        source: As for :class:`WaitingRows`.

    Attributes:
        stash_sql: The INSERT into the outbox.
        changes: The DELETE of rows, or the UPDATE that marks them as done.
        facts: The columns of the table.
        order: The order that its rows are taken in.

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
        self.facts: Mapping[str, ColumnFacts] = {}
        self._look(extras=extras)
        self._meanings = self._meant()
        self.order = self._judged()
        self._columns = (*COLUMNS[1:], *(name for name in EXTRAS if name in extras))
        self.stash_sql = stash(session.idiom, self._outbox, {column: column for column in self._columns})
        self.changes, self._done = self._change()
        self._key = self._key_text()

    @property
    def tells_keys(self) -> bool:
        """Whether a scan tells the keys of rows; it does not if they are made of parts of columns."""
        return self._intake.key in self._intake.columns

    @property
    def table(self) -> str:
        """The table's name."""
        return self._intake.table

    # --- what a dialect may know better -------------------------------------------------------------

    def _look(self, *, extras: Collection[str]) -> None:
        """Makes sure that rows can be taken in."""
        intake, idiom = self._intake, self.session.idiom
        columns = self.session.columns(idiom.quote_table(self._table))
        if columns is None:
            raise refusal(intake, "there is no such table, or the user does not see it; correct intake.table")
        if self.session.query(f"look at table {self.table}", idiom.view_query, **idiom.place(self._table)):
            raise view_refused(intake)
        wanted = (*intake.columns, *intake.where, *intake.done)
        if missing := [name for name in dict.fromkeys(wanted) if name.lower() not in columns]:
            raise refusal(intake, f"it lacks {', '.join(missing)}; it has {', '.join(sorted(columns))}")
        if lacking := lacks(intake, extras):
            raise refusal(intake, lacking_words(lacking), "; ".join(extra_columns(self._outbox, lacking)))
        self.facts = self._facts()

    @property
    def _place(self) -> str:
        """What is read as a row's place."""
        return self._name(self._intake.id)

    @property
    def _order(self) -> str:
        names = (self._intake.order, self._intake.id)
        return ", ".join(dict.fromkeys(self._name(name) for name in names if name))

    def _read(self, column: str) -> str:
        """Writes a column as it is read."""
        name = self._name(column)
        return self.session.idiom.instant(name, self.facts[column].type) or name

    def _facts(self) -> Mapping[str, ColumnFacts]:
        """Asks for the columns of the table; those that the intake names are as it writes them, too."""
        idiom, looking = self.session.idiom, f"look at table {self.table}"
        rows = self.session.query(looking, idiom.types, **idiom.place(self._table)) if idiom.types else ()
        found = {
            str(name): ColumnFacts(
                str(type_).lower(),
                idiom.second_digits,
                step=int(bool(counts)),
                told=counts is not None,
                required=bool(required),
            )
            for name, type_, counts, required in rows
        }
        known = {name.lower(): each for name, each in found.items()}
        return found | {
            name: known.get(name.lower(), ColumnFacts("number", told=False)) for name in self._intake.columns
        }

    def _meant(self) -> Mapping[str, Callable[[Any], Any]]:
        """Returns what makes a value that is not null of what is read, for columns where that differs."""
        idiom = self.session.idiom
        names = self._intake.columns
        return {name: in_utc for name in names if idiom.instant(self._name(name), self.facts[name].type)}

    def _judged(self) -> Order:
        """Makes sure that the rows have an order, as far as that shows."""
        name = self._intake.order or self._intake.id
        order = judge(self._intake, self.facts, lambda: [row[name] for row in self.sample([name], _JUDGED)])
        if order.level is Level.ERROR:
            raise refusal(self._intake, order.doubt, order.cure)
        return order

    def _fetch_at(
        self, columns: str, source: str, places: Sequence[Any], lock: str = ""
    ) -> Iterator[Sequence[Any]]:
        """Fetches rows by their places."""
        # Numbers become part of the statement, so each must be one.
        if all(isinstance(place, int) for place in places):
            yield from self.session.fetch_by_ids(
                SelectByIds(columns, source, suffix=lock, id_column=self._place), places
            )
            return
        for condition, values in self._listed(places):
            yield from self.session.fetch(f"SELECT {columns} FROM {source} WHERE {condition}{lock}", **values)

    def _change_at(self, places: Sequence[Any]) -> int:
        """Deletes rows by their places, or marks them as done; returns how many."""
        if all(isinstance(place, int) for place in places):
            return self.session.execute_by_ids(self.changes, places, **self._done)
        return sum(
            self.session.execute(self.changes.sql_of(condition), **values, **self._done)
            for condition, values in self._listed(places)
        )

    def _listed(self, places: Sequence[Any]) -> Iterator[tuple[str, Mapping[str, object]]]:
        for start in range(0, len(places), _LISTED):
            listed = {f"key{number}": key for number, key in enumerate(places[start : start + _LISTED])}
            yield f"{self._place} IN ({', '.join(f'{{{name}}}' for name in listed)})", listed

    def _found_in(self) -> str:
        """Writes the table where rows are found by their places."""
        return self._source

    def _array(self, texts: Sequence[str | None]) -> object:
        """Makes the parameter for names or values of headers."""
        return json_array(texts)

    def holders(self, places: Sequence[Any]) -> str:  # noqa: ARG002 - for databases that tell
        """Returns who has locked rows, in words; empty where that is not known."""
        return ""

    # --- what is done -------------------------------------------------------------------------------

    def scan(self, most: int, without: Collection[str]) -> list[Listed]:
        """Returns the earliest rows that wait, in their order; reads none of their content but the key.

        Args:
            most: How many at most.
            without: Keys to leave out.
        """
        session = self.session
        with session.transaction(f"look for rows of table {self.table}", reads=True):
            sql, values = self._scan(without)
            rows = session.fetch(sql, limit=most, **values)
        return [Listed(place, _key(key), int(size)) for place, key, size in rows]

    def _scan(self, without: Collection[str]) -> tuple[str, Mapping[str, object]]:
        idiom = self.session.idiom
        conditions, values = [self.condition.sql] if self.condition.sql else [], {**self.condition.values}
        if without:
            condition, given = idiom.not_in(idiom.comparable(self._key), list(without))
            conditions.append(condition)
            values |= given
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sizes = " + ".join(f"COALESCE({idiom.size_of(self._read(each))}, 0)" for each in self._sized())
        return idiom.limit(
            f"SELECT {self._place}, {self._key} AS key_text, {sizes} AS row_size"
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

    def free(self, places: Sequence[Any]) -> list[tuple[Any, Mapping[str, object]]]:
        """Locks rows that others have not, and returns their places and what becomes of them.

        A database that cannot leave them out waits.
        """
        hint, lock = self.session.idiom.free_rows
        return list(self._contents(f"{self._found_in()}{hint}", places, lock))

    def keys(self, places: Sequence[Any]) -> dict[Any, str]:
        """Returns the places and keys of rows, locked or not."""
        source = self.session.idiom.snapshot_read(self._source)
        return {place: str(values["kafka_key"]) for place, values in self._contents(source, places)}

    def _contents(
        self, source: str, places: Sequence[Any], lock: str = ""
    ) -> Iterator[tuple[Any, Mapping[str, object]]]:
        names = self._intake.columns
        columns = ", ".join((self._place, *map(self._read, names)))
        for place, *row in self._fetch_at(columns, source, places, lock):
            yield place, self._values(self._content(names, row))

    def there(self, places: Sequence[Any]) -> dict[Any, str]:
        """Returns the places and ids of those rows that are still in the table, locked or not."""
        source = self.session.idiom.snapshot_read(self._source)
        columns = f"{self._place}, {self._name(self._intake.id)}"
        return {place: str(number) for place, number in self._fetch_at(columns, source, places)}

    def stash(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Writes what has become of rows into the outbox."""
        self.session.execute_many(self.stash_sql, rows)

    def remove(self, places: Sequence[Any]) -> None:
        """Deletes rows, or marks them as done.

        Raises:
            DriverError: Not as many as there are places (not retryable).
        """
        if (removed := self._change_at(places)) != len(places):
            reason = f"of {len(places)} rows that were read {removed} would be removed; see its triggers"
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
            "free": SelectByIds(self._place, source, suffix=lock, id_column=self._place).sql(ids),
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

    def sample(self, columns: Sequence[str], most: int, *, waiting: bool = False) -> list[dict[str, Any]]:
        """Returns some columns of some rows, or of rows that wait."""
        condition = self.condition if waiting else Condition("", {})
        return self._some(columns, condition.where, condition.values, self._name(self._intake.id), most)

    def greatest(self, column: str) -> Any:
        """Returns the greatest value of a column of the rows that wait; ``None`` if there is none."""
        name, condition = self._name(column), self.condition
        where = f"{condition.where} AND" if condition.sql else " WHERE"
        rows = self._some([column], f"{where} {name} IS NOT NULL", condition.values, f"{name} DESC", 1)
        return rows[0][column] if rows else None

    def now(self) -> datetime:
        """Returns the present time by the database's clock."""
        with self.session.transaction("ask for the time", reads=True):
            return self.session.now()

    def _some(
        self, columns: Sequence[str], where: str, values: Mapping[str, object], order: str, most: int
    ) -> list[dict[str, Any]]:
        read = ", ".join(f"{self._read(name)} AS read{number}" for number, name in enumerate(columns))
        sql = f"SELECT {read} FROM {self.session.idiom.snapshot_read(self._source)}{where} ORDER BY {order}"
        limited = self.session.idiom.limit(sql, str(most))
        rows = self.session.query(f"look at table {self.table}", limited, **values)
        return [self._content(columns, row) for row in rows]

    def _content(self, columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
        found = dict(zip(columns, row, strict=True))
        for name, meaning in self._meanings.items():
            if found.get(name) is not None:
                found[name] = meaning(found[name])
        return found

    def _values(self, row: Mapping[str, Any]) -> Mapping[str, object]:
        taken = self._intake.take(row, binary=self._binary, bind=self._bind)
        value = self.session.idiom.value_parameter(taken.value)
        headers = (self._array(taken.names), self._array(taken.values))
        values = (taken.topic, taken.key, value, *headers, taken.partition, taken.timestamp_ms)
        found = dict(zip((*COLUMNS[1:], *EXTRAS), values, strict=True))
        return {column: found[column] for column in self._columns}


def lacks(intake: Intake, extras: Collection[str]) -> list[str]:
    """Returns which of ``EXTRAS`` an intake tells and an outbox with the columns ``extras`` does not keep."""
    told = zip(EXTRAS, (intake.partition, intake.timestamp), strict=True)
    return [name for name, source in told if source and name not in extras]


def lacking_words(columns: Sequence[str]) -> str:
    """Says that the outbox lacks columns."""
    return f"the outbox lacks the column{'s' * (len(columns) > 1)} {', '.join(columns)}"


def extra_columns(outbox: str, columns: Collection[str] = EXTRAS) -> list[str]:
    """Returns the statements that let an outbox keep partition and timestamp; ``outbox`` is quoted."""
    types = zip(EXTRAS, ("INTEGER", "DECIMAL(19)"), strict=True)
    return [f"ALTER TABLE {outbox} ADD {column} {type_}" for column, type_ in types if column in columns]


def refusal(intake: Intake, reason: str, cure: str = "") -> DriverError:
    """Returns the error for a table whose rows cannot be taken in."""
    reason = f"{reason}; {cure}" if cure else reason
    return DriverError(f"table {intake.table} cannot be taken in: {reason}", retryable=False)


def not_told_apart(table: str, more: int) -> DriverError:
    """Returns the error for rows that have the same id."""
    return DriverError(f"{more} rows of table {table} have the id of another one", retryable=False)


def view_refused(intake: Intake) -> DriverError:
    """Returns the error for an intake that names a view."""
    return refusal(
        intake, "it is a view, whose rows cannot be locked", "name its table, and set intake.where"
    )


def _key(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="backslashreplace")
    return "" if value is None else str(value)
