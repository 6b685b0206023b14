"""Judges whether the tables of an outbox are as the harvester, or who watches it, needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outbox_api import AccessDenied, ColumnIs, DriverError
from outbox_api.portable import TableName
from outbox_api.portable.notes import read_schema
from outbox_api.portable.tables import HARVESTED, NEEDS
from outbox_api.seams.schema import refusal

from outbox_postgres.catalogue import Catalogue
from outbox_postgres.faults import Fault, grant, init_and
from outbox_postgres.layout import Layout, find_layout
from outbox_postgres.options import PostgresOptions
from outbox_postgres.origin_columns import affinity_faults, constant, default_fault
from outbox_postgres.session import Session

_TEXTS = frozenset({"text", "varchar", "bpchar", "name"})
_TEXT_ARRAYS = frozenset({f"_{text}" for text in _TEXTS})
WANTED: dict[str, tuple[frozenset[str], str, str]] = {
    "id": (frozenset({"int8", "int4"}), "bigint", "bigint"),
    "create_time": (frozenset({"timestamptz", "timestamp"}), "timestamp with time zone", "timestamptz"),
    "kafka_topic": (_TEXTS, "varchar or text", "text"),
    "kafka_key": (_TEXTS, "varchar or text", "text"),
    "kafka_value": (_TEXTS | {"bytea"}, "varchar, text or bytea", "text"),
    "kafka_header_keys": (_TEXT_ARRAYS, "text[]", "text[]"),
    "kafka_header_values": (_TEXT_ARRAYS, "text[]", "text[]"),
    "leader_id": (frozenset({"uuid"}), "uuid", "uuid"),
}
"""Column → the types that it can have, their name in messages, and the type to recommend."""

WATCHERS_PRIVILEGES = ("SELECT",)
BESIDE = tuple(name for name in HARVESTED if name != "outbox")
"""The tables that every harvester needs beside the outbox, by their names in ``Tables``."""


def require(
    session: Session, options: PostgresOptions, eligible: Sequence[ColumnIs] = (), more: str = ""
) -> Layout:
    """Finds an outbox, and makes sure that it is as its user needs it; psycopg's errors pass through."""
    catalogue, watches = Catalogue(session.connection), session.connection.watches
    layout = find_layout(catalogue, options, writable=not watches)
    try:
        noted = read_schema(session, layout.tables)
    except DriverError as error:  # what is missing, or not permitted, is a fault with a cure of its own
        if error.retryable:
            raise
        noted = None
    if reason := refusal(noted):
        where = f"outbox {layout.outbox} in database '{layout.database}'"
        raise DriverError(f"{where} cannot be used: {reason}", retryable=False)
    inspector = Inspector(catalogue, options, read_only=watches)
    if more == "journal":
        inspector.require_journal(layout)
    else:
        inspector.require(layout, eligible, more)
    return layout


class Inspector:
    """Judges the tables that a connection leads to; psycopg's errors pass through.

    Attributes:
        catalogue: The catalogue that it reads.
    """

    def __init__(self, catalogue: Catalogue, options: PostgresOptions, *, read_only: bool = False) -> None:
        self.catalogue = catalogue
        self._options = options
        self._read_only = read_only

    def require(self, layout: Layout, eligible: Sequence[ColumnIs] = (), more: str = "") -> None:
        """Checks that the outbox can be harvested, or watched. Creates and alters nothing."""
        faults = [*self.faults(layout, eligible)]
        for name in (*BESIDE, *([more] if more else [])):
            faults += self.auxiliary_faults(layout, name, NEEDS[name].privileges)
        if not self._read_only:
            # Such rows would be published again and again.
            faults += [Fault(keeper, cure) for keeper, cure in self.catalogue.keepers(layout.oid)]
            columns, origin = self.catalogue.columns(layout.oid), self._options.origin
            if origin and origin.column in columns and origin.is_of_another(constant(columns[origin.column])):
                faults.append(default_fault(layout.outbox, origin, columns))
        purpose = "watched" if self._read_only else "harvested"
        _refuse_if(faults, f"outbox {layout.outbox} in database '{layout.database}' cannot be {purpose}")

    def require_journal(self, layout: Layout) -> None:
        """Checks that the journal can be written, or read, and the other tables beside the outbox be read."""
        wanted = {**dict.fromkeys(BESIDE, WATCHERS_PRIVILEGES), "journal": NEEDS["journal"].privileges}
        faults = [fault for each in wanted.items() for fault in self.auxiliary_faults(layout, *each)]
        purpose = "read" if self._read_only else "written"
        _refuse_if(
            faults, f"the journal of {layout.outbox} in database '{layout.database}' cannot be {purpose}"
        )

    def faults(self, layout: Layout, eligible: Sequence[ColumnIs] = ()) -> Iterator[Fault]:
        """Returns what is wrong with the outbox table."""
        columns = self.catalogue.columns(layout.oid)
        for name, (bases, wanted, type_) in WANTED.items():
            alter = f"ALTER TABLE {layout.outbox}"
            column = columns.get(name)
            if column is None:
                yield Fault(f"column '{name}' is missing", f"{alter} ADD COLUMN {name} {type_}")
            elif column.base not in bases:
                yield Fault(
                    f"column '{name}' has type {column.type} and must be {wanted}",
                    f"{alter} ALTER COLUMN {name} TYPE {type_} USING {name}::{type_}",
                )
        yield from affinity_faults(layout.outbox, eligible, self._options.origin, columns)
        yield from self._privilege_faults(layout, layout.oid, layout.outbox, NEEDS["outbox"].privileges)

    def auxiliary_faults(self, layout: Layout, name: str, privileges: Sequence[str]) -> Iterator[Fault]:
        """Returns what is wrong with a table beside the outbox, by its name in ``Tables``."""
        need, table = NEEDS[name], getattr(layout.tables, name)
        found = self.catalogue.find(table)
        if found is None:
            granted = WATCHERS_PRIVILEGES if self._read_only else privileges
            cure = init_and(grant(granted, table, layout.user)) if granted else "run 'outbox init'"
            cure = cure if name != "kept" or layout.keep else f"set the option 'keep', and {cure}"
            yield Fault(f"there is no {need.subject} {table}", cure)
            return
        wanted = {*need.columns, *(["releases"] if name == "fence" else [])}
        if missing := sorted(wanted.difference(self.catalogue.columns(found.oid))):
            yield Fault(
                f"{need.subject} {table} lacks the columns {', '.join(missing)}",
                f"{need.instead}, or drop the table while no harvester runs",
            )
        yield from self._privilege_faults(layout, found.oid, table, privileges)

    def _privilege_faults(
        self, layout: Layout, oid: int, table: TableName, harvesters: Sequence[str]
    ) -> Iterator[Fault]:
        wanted = WATCHERS_PRIVILEGES if self._read_only else harvesters
        if missing := self.catalogue.missing_privileges(oid, wanted):
            yield Fault(
                f"user '{layout.user}' lacks the privileges {', '.join(missing)} on {table}",
                grant(missing, table, layout.user),
                refusal=True,
            )


def _refuse_if(faults: Sequence[Fault], refused: str) -> None:
    if not faults:
        return
    message = f"{refused}: {'; '.join(f'{fault.message}: {fault.cure}' for fault in faults)}"
    if all(fault.refusal for fault in faults):
        raise AccessDenied(message, lacks="; ".join(fault.message for fault in faults))
    raise DriverError(message, retryable=False)
