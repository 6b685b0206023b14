"""Takes rows of a table of another layout into the outbox (see ``outbox_api.portable.moving``)."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from outbox_api import Intake, Level
from outbox_api.portable.column_facts import ColumnFacts, Nature
from outbox_api.portable.intake import PortableIntake
from outbox_api.portable.intake_order import Order
from outbox_api.portable.intake_table import VIEW, WaitingRows, refusal
from outbox_api.portable.sources import COLUMNS

from outbox_postgres.catalogue import Catalogue, Relation
from outbox_postgres.ddl import EXTRA_TYPES
from outbox_postgres.intake_columns import meaning, read
from outbox_postgres.layout import OTHER_KINDS, TABLE_KINDS, Layout
from outbox_postgres.options import QuotedName, quoted
from outbox_postgres.session import Session, lockers, text_array

SCANNING = """
SELECT set_config('work_mem', '64MB', false), set_config('enable_seqscan', 'off', false),
       set_config('jit', 'off', false), set_config('TimeZone', 'UTC', false),
       set_config('DateStyle', 'ISO', false), set_config('IntervalStyle', 'postgres', false),
       set_config('bytea_output', 'hex', false), set_config('lc_monetary', 'C', false),
       set_config('extra_float_digits', '1', false)
"""
"""Settings of a session that takes in: the list of a scan is sorted in memory, and rows are found by their
places, whatever the statistics say; what needs the whole table reads it all the same. Texts do not depend on
the role's settings."""

_COMMITS_INSTEAD = (
    "or leave intake.order out, with track_commit_timestamp = on in the server: rows then come in the order "
    "of commits"
)
_MOMENT = "pg_xact_commit_timestamp(src.xmin)"
# A sub-transaction has the moment of the whole, and commands are counted through it. What was committed
# before the server kept moments comes first, by the age of its transaction.
_COMMITS = (
    f"{_MOMENT} NULLS FIRST, CASE WHEN {_MOMENT} IS NULL THEN age(src.xmin) END DESC,"
    " src.cmin::text::bigint, src.ctid"
)
# Tells apart whatever a table, or the parts of one, may ever hold.
_VERSION = "(src.tableoid, src.ctid, src.xmin)::text"
_LISTS = {"kafka_partition": "int4[]", "kafka_timestamp": "int8[]"}
_AT = f"src.ctid = ANY ({{pages}}::text[]::tid[]) AND {_VERSION} = ANY ({{places}}::text[])"


def waiting_rows(session: Session, intake: Intake) -> WaitingRows:
    """Finds the table of an intake."""
    with session.translated(f"look at table {intake.table}"):
        return WaitingRows(session, intake, _find(Catalogue(session.connection), intake).name)


class PostgresIntake(PortableIntake):
    """Finds rows by their place and version, as no column need tell them apart."""

    _known_as = staticmethod(str)

    def __init__(self, session: Session, layout: Layout, intake: Intake) -> None:
        catalogue = self._catalogue = Catalogue(session.connection)
        self._layout = layout
        with session.translated(f"look at table {intake.table}"):
            found = self._relation = _find(catalogue, intake)
            self._columns_by_name = catalogue.columns(found.oid)
            super().__init__(
                session,
                intake,
                layout.outbox,
                binary=layout.binary,
                extras=layout.extras,
                source=found.name,
            )
            if self._done:  # what cannot be written is found as this is planned
                session.query("try intake.done", f"EXPLAIN {self.changes.sql_of('1 = 0')}", **self._done)
        names = ", ".join(self._columns)
        lists = ", ".join(f"{{{name}}}::{_LISTS.get(name, 'text[]')}" for name in self._columns)
        value = {"kafka_value": "::bytea"} if layout.binary else {}
        casts = {"kafka_header_keys": "::text[]", "kafka_header_values": "::text[]", **value}
        read = ", ".join(f"listed.{name}{casts.get(name, '')}" for name in self._columns)
        self._stash_all = (
            f"INSERT INTO {self._outbox} (create_time, {names}) SELECT clock_timestamp(), {read}"
            f" FROM unnest({lists}) AS listed ({names})"
        )

    def _names(self) -> Collection[str]:
        intake, user, (oid, table, kind) = self._intake, self._layout.user, self._relation
        if kind in ("v", "m"):
            raise refusal(intake, *VIEW)
        if kind not in TABLE_KINDS:
            raise refusal(intake, f"it is a {OTHER_KINDS.get(kind, 'something else')}", "name a table")
        # A row is locked before it is moved, which asks for UPDATE.
        rights = ["SELECT", "UPDATE", *([] if intake.done else ["DELETE"])]
        if missing := ", ".join(self._catalogue.missing_privileges(oid, rights)):
            grant = f"GRANT {missing} ON {table} TO {quoted(user)}"
            raise refusal(intake, f"user '{user}' lacks {missing} on it", grant)
        return self._columns_by_name

    def _adding(self, extras: Collection[str]) -> str:
        added = ", ".join(f"ADD COLUMN {name} {EXTRA_TYPES[name]}" for name in extras)
        return f"ALTER TABLE {self._layout.outbox} {added}"

    def _facts(self) -> Mapping[str, ColumnFacts]:
        intake, columns = self._intake, self._columns_by_name
        if columns[intake.value_column].base == "bytea" and not self._layout.binary:
            raise refusal(intake, f"'{intake.value}' holds bytes, the outbox text", "set valueType: bytea")
        steps = self._catalogue.steps(self._relation.oid)
        found = {name: each._replace(step=steps.get(name, 0)) for name, each in columns.items()}
        found |= {
            name: each._replace(type=each.base) for name, each in found.items() if each.nature is Nature.OTHER
        }
        self._by_commits = not intake.order and found[intake.id].nature is not Nature.NUMBER
        if self._by_commits:
            self._require_moments()
        self._source = f"{self._source} AS src"
        return found

    def _require_moments(self) -> None:
        row = self._catalogue.connection.execute("SHOW track_commit_timestamp").fetchone()
        if not row or row[0] != "on":
            raise refusal(
                self._intake,
                f"'{self._intake.id}' does not tell the order of its rows",
                "name a column that does as intake.order, or set track_commit_timestamp = on in the server, "
                "which then knows it",
            )

    @property
    def _place(self) -> str:
        return _VERSION

    @property
    def _order(self) -> str:
        if self._by_commits:
            return _COMMITS
        names = dict.fromkeys(name for name in (self._intake.order, self._intake.id) if name)
        return ", ".join(f"src.{self._name(name)}" for name in names)

    def _read(self, column: str) -> str:
        found, name = self._columns_by_name[column], f"src.{self._name(column)}"
        return read(name, found)

    def _meant(self) -> Mapping[str, Callable[[Any], Any]]:
        found = {name: meaning(self._columns_by_name[name]) for name in self._intake.columns}
        return {name: each for name, each in found.items() if each}

    def _judged(self) -> Order:
        if not self._by_commits:
            order = super()._judged()
            if order.doubt and self.facts[self._intake.id].nature is not Nature.NUMBER:
                return order._replace(cure=f"{order.cure}; {_COMMITS_INSTEAD}")
            return order
        doubt = "rows of one statement come by their place in the table, which need not be that of writing"
        return Order(Level.WARNING, "the order of commits", doubt, "name a column of numbers as intake.order")

    def _fetch_at(
        self, columns: str, source: str, places: Sequence[Any], lock: str = ""
    ) -> Iterator[Sequence[Any]]:
        yield from self.session.fetch(f"SELECT {columns} FROM {source} WHERE {_AT}{lock}", **_at(places))

    def _change_at(self, places: Sequence[Any]) -> int:
        changing, values = self.changes.sql_of(_AT), {**_at(places), **self._done}
        if not self.changes.assignments:
            return self.session.execute(changing, **values)
        also, given = self.condition
        changed = f"WITH changed AS ({changing} RETURNING {also} AS waits)"
        counting = f"{changed} SELECT count(*) FROM changed WHERE waits IS NOT TRUE"
        return int(self.session.fetch(counting, **values, **given)[0][0])

    def _waiting_still(self, places: Sequence[Any]) -> int:  # noqa: ARG002 - rows have new places
        return 0  # the change itself has told

    def _array(self, texts: Sequence[str | None]) -> object:
        return text_array(texts)

    def stash(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Writes what has become of rows into the outbox, by one statement."""
        columns = {name: text_array(_written(row[name]) for row in rows) for name in self._columns}
        if (written := self.session.execute(self._stash_all, **columns)) != len(rows):
            reason = f"of {len(rows)} rows {written} would be written into the outbox"
            raise refusal(self._intake, reason, "see its triggers")

    def holders(self, places: Sequence[Any]) -> str:
        """Returns who has locked rows, in words."""
        session = self.session
        with_places = session.fetch(f"SELECT src.xmax::text FROM {self._source} WHERE {_AT}", **_at(places))
        return lockers(self.session, [row[0] for row in with_places])  # type: ignore[arg-type]  # it is ours


def _at(places: Sequence[str]) -> dict[str, object]:
    """Makes the parameters that find rows: a version contains the place in its page, in quotes."""
    return {"pages": text_array(place.split('"')[1] for place in places), "places": text_array(places)}


def _written(value: object) -> str | None:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return None if value is None else str(value)


def inserted(layout: Layout) -> tuple[str, ...]:
    """Returns the columns that an intake writes, ``create_time`` first."""
    return ("create_time", *COLUMNS[1:], *layout.extras)


def _find(catalogue: Catalogue, intake: Intake) -> Relation:
    found = catalogue.find(QuotedName.parse(intake.table))
    if found is None:
        alike = ", ".join(catalogue.spelled_otherwise(QuotedName.parse(intake.table)))
        cure = f"there is {alike}: write it so, with quotes" if alike else "correct intake.table"
        raise refusal(intake, "there is no such table, or the user does not see it", cure)
    return found
