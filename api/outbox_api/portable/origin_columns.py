"""The columns and the index by which the rows of a portable outbox tell where they were written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from outbox_api.base.finding import Finding, Level
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.session import Session
from outbox_api.portable.statements import Statements
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import Tables
from outbox_api.portable.view import Origins
from outbox_api.seams.affinity import Origin
from outbox_api.seams.outbox_view import OriginBacklog


def find_index(session: Session, table: TableName, columns: Sequence[str]) -> str:
    """Returns the name of an index that begins with ``columns`` in any case; empty if none is known."""
    idiom = session.idiom
    if not idiom.indexes:
        return ""
    found: dict[str, list[str]] = {}
    for name, indexed in session.query("look at the indexes", idiom.indexes, **idiom.place(table)):
        found.setdefault(str(name), []).append(str(indexed).lower())
    wanted = [column.lower() for column in columns]
    return next((name for name, listed in found.items() if listed[: len(wanted)] == wanted), "")


_TYPE = "INTEGER"


class OriginColumns:
    """Makes and looks for the columns of one outbox. Cannot be used without a table, but for ``created``."""

    def __init__(self, idiom: Idiom, outbox: TableName, origin: Origin) -> None:
        self._idiom = idiom
        self._outbox = outbox
        self._origin = origin

    def created(self) -> list[str]:
        """Returns the statements that add everything to a table which has just been created."""
        return [self._add(self._origin.own), *self._arrival(), self._index()]

    def missing(self, session: Session) -> list[Sequence[str]]:
        """Returns the statements that add what a table lacks; those of one element belong together.

        Rows that are there belong to the cluster ``origin.existing``. A default that is not this cluster's
        number is changed, and an arrival without one gets it, as a process may have ended before it did that.
        """
        origin = self._origin
        columns = session.columns(self._idiom.quote_table(self._outbox)) or ()
        added = list[Sequence[str]]()
        if origin.column.lower() not in columns:
            added.append(self._add_to_existing())
        elif (right := self._right_default()) and self.default(session) != origin.own:
            added.append([right])
        if origin.arrival and origin.arrival.lower() not in columns:
            added.append(self._arrival())
        elif (
            origin.arrival and (fill := self._fills_arrival()) and not self._written(session, origin.arrival)
        ):
            added.append([fill])
        if self.index(session) == "" and (self._idiom.indexes or added):
            added.append([self._index()])
        return added

    def default(self, session: Session) -> int | None:
        """Returns the default of the column; ``None`` if it is no number, or there is none."""
        number = re.fullmatch(r"[\s('\"]*(-?\d+)[\s)'\"]*", self._written(session, self._origin.column))
        return int(number[1]) if number else None

    def wrong_default(self, default: int | None) -> tuple[str, str]:
        """Returns what is wrong with a default that is not this cluster's number, and the cure."""
        origin, right = self._origin, self._right_default()
        whose = "none that is a number" if default is None else str(default)
        cure = f"run 'outbox init', or let somebody run: {right}" if right else "create the table anew"
        if origin.is_of_another(default):
            cure = f"correct clusterID; or, if the table came from cluster {default}, {cure}"
        return f"the default of {origin.column} is {whose}, and this is cluster {origin.own}", cure

    def index(self, session: Session) -> str:
        """Returns the name of an index of the column and ``id``; empty if there is none."""
        return find_index(session, self._outbox, (self._origin.column, "id"))

    def _written(self, session: Session, column: str) -> str:
        """Returns a column's default as the database writes it; empty if there is none."""
        place = self._idiom.place(self._outbox)
        rows = session.query("look at the defaults of columns", self._idiom.defaults, **place)
        found = [default for name, default in rows if str(name).lower() == column.lower()]
        written = str(found[0]).strip() if found else ""
        return "" if written.upper() in {"NONE", "NULL"} else written

    def _add(self, default: int) -> str:
        return self._idiom.add_column(
            self._outbox, self._origin.column, f"{_TYPE} DEFAULT {default} NOT NULL"
        )

    def _add_to_existing(self) -> list[str]:
        own, existing = self._origin.own, self._origin.existing
        if own == existing:
            return [self._add(own)]
        if right := self._right_default():
            return [self._add(existing), right]
        table, column = self._idiom.quote_table(self._outbox), self._idiom.quote(self._origin.column)
        return [self._add(own), f"UPDATE {table} SET {column} = {existing}"]  # noqa: S608 - quoted, and a number

    def _right_default(self) -> str:
        return self._idiom.set_default(self._outbox, self._origin.column, str(self._origin.own))

    def _arrival(self) -> list[str]:
        return self._idiom.add_arrival(self._outbox, self._origin.arrival) if self._origin.arrival else []

    def _fills_arrival(self) -> str:
        return self._idiom.set_default(self._outbox, self._origin.arrival, self._idiom.now)

    def _index(self) -> str:
        return self._idiom.create_index(self._outbox, (self._origin.column, "id"))


SUBJECT = "clusters"


def origin_findings(
    session: Session, tables: Tables, origin: Origin, found: Collection[str]
) -> Iterator[Finding]:
    """Checks an outbox that exists."""
    outbox = tables.outbox
    names = [name for name in (origin.column, origin.arrival) if name]
    if missing := [name for name in names if name.lower() not in found]:
        seen = f"table '{outbox}' lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"
        yield Finding(Level.ERROR, SUBJECT, seen, "run 'outbox init', which adds what the affinity needs")
        return
    troubles = [*_default(session, outbox, origin), *_index(session, outbox, origin)]
    unserved = orphans(origin, _backlogs(session, tables, origin))
    troubles += [unserved] if unserved else []
    yield from troubles
    if not troubles:
        yield Finding(Level.OK, SUBJECT, f"this is cluster {origin.own} of {len(origin.known)}")


def orphans(origin: Origin, backlogs: Collection[OriginBacklog]) -> Finding | None:
    """Returns the finding for rows of clusters that nobody serves, if there are any."""
    unknown = [each for each in backlogs if each.cluster not in origin.known]
    if not unknown:
        return None
    rows = ", ".join(f"{each.cluster} ({'' if each.exact else 'over '}{each.records:,})" for each in unknown)
    cure = f"correct clustersCount, or UPDATE their {origin.column} to a cluster that exists"
    return Finding(Level.WARNING, "orphans", f"nobody serves the rows of cluster {rows}", cure)


def no_origin_index(origin: Origin, cure: str) -> Finding:
    """Returns the finding for an outbox without an index of the column and ``id``."""
    seen = f"no index starts with {origin.column}, id: marks pass the rows of other clusters one by one"
    return Finding(Level.WARNING, "cluster index", seen, cure)


def _default(session: Session, outbox: TableName, origin: Origin) -> Iterator[Finding]:
    columns = OriginColumns(session.idiom, outbox, origin)
    if (default := columns.default(session)) != origin.own:
        level = Level.ERROR if origin.is_of_another(default) else Level.WARNING
        yield Finding(level, "cluster default", *columns.wrong_default(default))


def _index(session: Session, outbox: TableName, origin: Origin) -> Iterator[Finding]:
    idiom: Idiom = session.idiom
    if idiom.indexes and not find_index(session, outbox, (origin.column, "id")):
        statement = idiom.create_index(outbox, (origin.column, "id"))
        yield no_origin_index(origin, f"run 'outbox init', or let somebody run: {statement}")


def _backlogs(session: Session, tables: Tables, origin: Origin) -> list[OriginBacklog]:
    if not (index := find_index(session, tables.outbox, (origin.column, "id"))):
        return []  # it might take a look at every row
    indexes = {origin.column: index}
    sql = Statements(session.idiom, tables, indexes=indexes)
    with session.transaction("look for rows of each cluster", reads=True):
        return Origins(session, sql, origin, indexes).backlogs()
