"""The table of another layout: which of its rows wait, what its columns are, and how they are read."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from outbox_api.base.errors import DriverError
from outbox_api.base.finding import Level
from outbox_api.intake.column_text import in_utc, is_set
from outbox_api.intake.intake import Intake, Value
from outbox_api.portable.column_facts import ColumnFacts
from outbox_api.portable.intake_order import Order, judge
from outbox_api.portable.session import Session
from outbox_api.portable.sources import EXTRAS, quoted
from outbox_api.portable.table_idiom import TableName

_JUDGED = 100
"""So many values of a column show whether it tells an order."""

PRESENT = "now()"
"""Stands for the database's present time, where a row is marked as done."""


VIEW = ("it is a view, whose rows cannot be locked", "name its table, and set intake.where")
"""Why a view is refused, and what helps."""


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

    @property
    def table(self) -> str:
        """The table's name."""
        return self._intake.table

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
            each = _each(wanted)
            listed = ", ".join(written(value) for value in each if value is not None)
            name = self._name(column)
            choices = [f"{name} IN ({listed})"] if listed else []
            choices += [f"{name} IS NULL"] if None in each else []
            conditions.append(f"({' OR '.join(choices)})")
        undone = [_undone(self._name(column), value, written) for column, value in self._intake.done.items()]
        conditions += [f"({' OR '.join(undone)})"] if undone else []
        return Condition(" AND ".join(conditions), values)


def _each(wanted: Value | Sequence[Value]) -> Sequence[Value]:
    return [wanted] if wanted is None or isinstance(wanted, str | bool) else wanted


def _undone(name: str, value: object, written: Callable[[object], str]) -> str:
    if value is None:
        return f"{name} IS NOT NULL"
    return f"{name} IS NULL" if value == PRESENT else f"{name} IS NULL OR {name} <> {written(value)}"


class KnownTable(WaitingRows):
    """The rows of one table, and what the database says of their columns.

    Attributes:
        facts: The columns of the table.
        order: The order that its rows are taken in.
    """

    facts: Mapping[str, ColumnFacts]
    order: Order
    _outbox: str
    _known_as: Callable[[str], str] = staticmethod(str.lower)

    def _look(self, extras: Collection[str]) -> None:
        """Makes sure that rows can be taken in, and notes the columns; ``extras`` are those of the outbox."""
        intake, known = self._intake, self._names()
        wanted = (*intake.columns, *intake.where, *intake.done)
        if missing := [name for name in dict.fromkeys(wanted) if self._known_as(name) not in known]:
            raise refusal(intake, f"it lacks {', '.join(missing)}", f"it has {', '.join(sorted(known))}")
        told = zip(EXTRAS, (intake.partition, intake.timestamp), strict=True)
        if lacking := [name for name, column in told if column and name not in extras]:
            reason = f"the outbox lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}"
            raise refusal(intake, reason, self._adding(lacking))
        self.facts = self._facts()
        self._meanings = self._meant()
        self._require_values()
        self.order = self._judged()

    def _names(self) -> Collection[str]:
        """Returns the names of columns as ``_known_as`` writes them; refuses what is no table."""
        intake, idiom = self._intake, self.session.idiom
        columns = self.session.columns(idiom.quote_table(self._table))
        if columns is None:
            raise refusal(
                intake, "there is no such table, or the user does not see it", "correct intake.table"
            )
        if self.session.query(f"look at table {self.table}", idiom.view_query, **idiom.place(self._table)):
            raise refusal(intake, *VIEW)
        return columns

    def _adding(self, extras: Collection[str]) -> str:
        """Writes what gives the outbox columns that it lacks."""
        return "; ".join(extra_columns(self._outbox, extras))

    def _require_values(self) -> None:
        """Makes sure that columns can hold what ``where`` and ``done`` say; to some servers any text is 0."""
        facts = {name.lower(): each for name, each in self.facts.items()}
        for option, named in (("where", self._intake.where), ("done", self._intake.done)):
            for column, wanted in named.items():
                of_column = facts.get(column.lower(), ColumnFacts(""))
                for value in _each(wanted):
                    if of_column.never(value) and (value is not None or wanted is None):
                        never = "is never null" if value is None else f"never equals '{value}'"
                        reason = f"'{column}' ({of_column.type}) {never}"
                        raise refusal(self._intake, reason, f"correct intake.{option}")
        if self.condition.sql:
            nothing = f" WHERE 1 = 0 AND {self.condition.sql}"
            self._some([self._intake.id], nothing, self.condition.values, self._name(self._intake.id), 1)

    def _read(self, column: str) -> str:
        """Writes a column as it is read."""
        name = self._name(column)
        return self.session.idiom.instant(name, self.facts[column].type) or name

    def _facts(self) -> Mapping[str, ColumnFacts]:
        """Asks for the columns of the table; those that the intake names are as it writes them, too."""
        idiom, looking = self.session.idiom, f"look at table {self.table}"
        rows = self.session.query(looking, idiom.types, **idiom.place(self._table))
        found = {
            str(name): ColumnFacts(
                str(type_).lower(),
                idiom.second_digits,
                step=int(bool(counts)),
                told=counts is not None,
                required=bool(required),
                instant=bool(idiom.instant("", str(type_).lower())),
            )
            for name, type_, counts, required in rows
        }
        known = {name.lower(): each for name, each in found.items()}
        return found | {
            name: known.get(name.lower(), ColumnFacts("", told=False)) for name in self._intake.columns
        }

    def _meant(self) -> Mapping[str, Callable[[Any], Any]]:
        """Returns what makes a value that is not null of what is read, for columns where that differs."""
        idiom = self.session.idiom
        names = self._intake.columns
        moments = {name: in_utc for name in names if idiom.instant(self._name(name), self.facts[name].type)}
        return moments | {name: is_set for name in names if self.facts[name].type == "bit(1)"}

    def _judged(self) -> Order:
        """Makes sure that the rows have an order, as far as that shows."""
        name = self._intake.order or self._intake.id
        order = judge(self._intake, self.facts, lambda: [row[name] for row in self.sample([name], _JUDGED)])
        if order.level is Level.ERROR:
            raise refusal(self._intake, order.doubt, order.cure)
        return order

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
        return self.session.ask_time()

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


def refusal(intake: Intake, reason: str, cure: str = "") -> DriverError:
    """Returns the error for a table whose rows cannot be taken in."""
    reason = f"{reason}; {cure}" if cure else reason
    return DriverError(f"table {intake.table} cannot be taken in: {reason}", retryable=False)


def extra_columns(outbox: str, columns: Collection[str] = EXTRAS) -> list[str]:
    """Returns the statements that let an outbox keep partition and timestamp; ``outbox`` is quoted."""
    types = zip(EXTRAS, ("INTEGER", "DECIMAL(19)"), strict=True)
    return [f"ALTER TABLE {outbox} ADD {column} {type_}" for column, type_ in types if column in columns]
