"""What ``outbox init`` creates in PostgreSQL, and what it adds to tables that exist."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_api.portable import TableName
from outbox_api.portable.tables import Tables

from outbox_postgres.catalogue import Catalogue
from outbox_postgres.ddl import parked_index, parked_index_ddl, sequence_ddl, sequence_of
from outbox_postgres.options import PostgresOptions, QuotedName
from outbox_postgres.origin_columns import due_columns
from outbox_postgres.session import Session


def placed(session: Session, options: PostgresOptions) -> Tables:
    """Returns the names of the tables with their schemas: those they are in, or are to be created in."""
    catalogue = Catalogue(session.connection)
    with session.translated(f"look for table {options.outbox}"):
        found = catalogue.find(options.outbox)
        outbox = found.name if found else session.connection.new(options.outbox)
    return Tables(*(TableName(*table.within(outbox.schema)) for table in options.tables))._replace(
        outbox=TableName(*outbox)
    )


def additions(session: Session, options: PostgresOptions, names: Tables) -> list[Sequence[str]]:
    """Returns the statements that add what tables lack that others have created, by transaction.

    That is the sequence of the lease, the index of the parked keys, and what the affinity asks for. No row is
    written.
    """
    catalogue, outbox = Catalogue(session.connection), QuotedName(*names.outbox)
    due: list[Sequence[str]] = []
    with session.translated("look at the tables"):
        letters = QuotedName(*names.dead_letters)
        if not catalogue.find(parked_index(letters)):
            due.append([parked_index_ddl(letters)])
        if not catalogue.find(sequence := sequence_of(outbox)):
            due.append([sequence_ddl(sequence)])
        found = catalogue.find(outbox)
        if found and (origin := options.origin):
            if columns := due_columns(outbox, origin, catalogue.columns(found.oid)):
                due.append(columns)
            if origin.column not in catalogue.indexed(found.oid):
                due.append([session.idiom.create_index(outbox, (origin.column, "id"))])
    return due
