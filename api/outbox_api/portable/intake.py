"""Takes rows of a table of another layout into a portable outbox (see ``outbox_api.intake``)."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from outbox_api.errors import DriverError
from outbox_api.intake import Intake
from outbox_api.portable.by_ids import ChangeByIds
from outbox_api.portable.rows import bound, json_array
from outbox_api.portable.session import Session
from outbox_api.portable.sources import COLUMNS, EXTRAS, quoted
from outbox_api.portable.statements import stash
from outbox_api.portable.table_idiom import TableName

PORTION = 10_000
"""So many rows are taken in at once, at most."""

_LISTED = 500
"""So many ids that are no numbers one statement lists."""


class PortableIntake:
    """Moves the rows of one table into an outbox.

    Args:
        session: The connection.
        intake: What to take in.
        outbox: The outbox table.
        binary: Whether the outbox keeps values as bytes.
        extras: Whether it keeps partition and timestamp.

    Attributes:
        earliest: The query for the earliest ``{limit}`` rows.
        stash: The INSERT into the outbox.

    Raises:
        DriverError: It cannot be: no such table or column (not retryable), or the database is gone.
    """

    def __init__(
        self, session: Session, intake: Intake, outbox: TableName, *, binary: bool, extras: bool
    ) -> None:
        self._session = session
        self._intake = intake
        self._binary = binary
        idiom = session.idiom
        source = TableName.parse(intake.table)
        columns = session.columns(idiom.quote_table(source))
        if columns is None:
            raise refusal(intake, "there is no such table, or the user does not see it; correct intake.table")
        if missing := [name for name in intake.columns if name.lower() not in columns]:
            raise refusal(intake, f"it lacks {', '.join(missing)}; it has {', '.join(sorted(columns))}")
        if (intake.partition or intake.timestamp) and not extras:
            added = "; ".join(extra_columns(idiom.quote_table(outbox)))
            raise refusal(intake, f"the outbox has no columns for partition and timestamp; {added}")
        self._columns = COLUMNS[1:] + (EXTRAS if extras else ())
        self._source = quoted(idiom, source)
        self._key = _name(session, intake.id)
        order = ", ".join(dict.fromkeys(_name(session, name) for name in (intake.order, intake.id) if name))
        read = ", ".join(_name(session, name) for name in intake.columns)
        self.earliest = idiom.limit(
            f"SELECT {read} FROM {idiom.snapshot_read(self._source)} ORDER BY {order}", "{limit}"
        )
        with session.transaction(f"look at table {intake.table}", reads=True):
            self._require_order(session.fetch(self.earliest, limit=1))
        self._bind = partial(bound, idiom)
        self._outbox = quoted(idiom, outbox)
        self.stash = stash(idiom, self._outbox, {column: column for column in self._columns})

    def take(self, limit: int) -> None:
        """Moves the earliest rows, ``limit`` at most, as part of the transaction that holds the fence.

        Raises:
            DriverError: Nothing tells the order of the rows, or the rows apart (not retryable).
        """
        rows = self._session.fetch(self.earliest, limit=min(limit, PORTION))
        if not rows:
            return
        intake, names = self._intake, self._intake.columns
        found = [dict(zip(names, row, strict=True)) for row in rows]
        ids = [row[intake.id] for row in found]
        self._require_order(rows)
        self._session.execute_many(self.stash, [self._values(row) for row in found])
        if (deleted := self._delete(ids)) != len(ids):
            raise refusal(
                intake,
                f"of {len(ids)} rows that were read {deleted} would be deleted; "
                f"'{intake.id}' is null or not unique, or somebody else deletes rows, too",
            )

    def waiting(self, most: int) -> int:
        """Returns how many rows are still to be taken in, counted up to ``most``; part of a transaction."""
        sample = self._session.idiom.limit(f"SELECT {self._key} FROM {self._source} ORDER BY 1", "{limit}")
        return int(self._session.fetch(f"SELECT COUNT(*) FROM ({sample}) counted", limit=most)[0][0])

    def _require_order(self, rows: Sequence[Sequence[Any]]) -> None:
        name = self._intake.id
        if rows and not self._intake.order and not isinstance(rows[0][self._intake.columns.index(name)], int):
            raise refusal(self._intake, f"'{name}' does not tell the order of its rows; set intake.order")

    def trials(self) -> list[tuple[str, str]]:
        """Returns rights beside SELECT, each with a statement that needs it and changes no row."""
        filled = () if self._session.idiom.fills_create_time else ("create_time",)
        columns, nothing = ", ".join((*filled, *self._columns)), f"FROM {self._outbox} WHERE 1 = 0"
        return [
            (
                f"INSERT ({columns}) ON {self._outbox}",
                f"INSERT INTO {self._outbox} ({columns}) SELECT {columns} {nothing}",
            ),
            (f"DELETE ON {self._source}", f"DELETE FROM {self._source} WHERE 1 = 0"),
        ]

    def deletion(self) -> ChangeByIds:
        """Returns the DELETE of rows of the source by their ids."""
        return ChangeByIds(self._source, id_column=self._key)

    def _delete(self, keys: Sequence[Any]) -> int:
        delete = self.deletion()
        # They may become part of the statement, so each must be a number.
        if all(isinstance(key, int) for key in keys):
            return self._session.execute_by_ids(delete, keys)
        deleted = 0
        for start in range(0, len(keys), _LISTED):
            listed = {f"key{number}": key for number, key in enumerate(keys[start : start + _LISTED])}
            places = ", ".join(f"{{{name}}}" for name in listed)
            deleted += self._session.execute(delete.sql(places), **listed)
        return deleted

    def _values(self, row: Mapping[str, Any]) -> Mapping[str, object]:
        taken = self._intake.take(row, binary=self._binary, bind=self._bind)
        headers = (json_array(taken.names), json_array(taken.values))
        values = (taken.topic, taken.key, taken.value, *headers, taken.partition, taken.timestamp_ms)
        return dict(zip(self._columns, values, strict=False))


def extra_columns(outbox: str) -> list[str]:
    """Returns the statements that let an outbox keep partition and timestamp; ``outbox`` is quoted."""
    types = zip(EXTRAS, ("INTEGER", "DECIMAL(19)"), strict=True)
    return [f"ALTER TABLE {outbox} ADD {column} {type_}" for column, type_ in types]


def _name(session: Session, column: str) -> str:
    return quoted(session.idiom, TableName("", column)) if column else ""


def refusal(intake: Intake, reason: str, cure: str = "") -> DriverError:
    """Returns the error for a table whose rows cannot be taken in."""
    reason = f"{reason}; {cure}" if cure else reason
    return DriverError(f"table {intake.table} cannot be taken in: {reason}", retryable=False)
