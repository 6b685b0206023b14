"""What ``outbox check`` reports about an outbox that several clusters harvest copies of."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
from outbox_api import Finding, Level, Origin
from outbox_api.portable.origin_columns import orphans
from outbox_api.portable.statements import Statements
from outbox_api.portable.view import Origins

from outbox_postgres.catalogue import Catalogue
from outbox_postgres.ddl import PostgresIdiom
from outbox_postgres.layout import Layout
from outbox_postgres.options import quoted
from outbox_postgres.origin_columns import IDS_OF_CLUSTER, default_fault, first_id, writes
from outbox_postgres.session import Session

_PUBLISHED = """
SELECT p.pubname, p.pubinsert, p.pubupdate, p.pubdelete, c.oid::bigint
FROM pg_publication AS p
JOIN pg_publication_tables AS t ON t.pubname = p.pubname
JOIN pg_namespace AS n ON n.nspname = t.schemaname
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE c.oid = ANY ($1::bigint[]::oid[]) ORDER BY p.pubname
"""
_LISTED = """
SELECT pubname FROM pg_publication_tables
WHERE schemaname = $1 AND tablename = $2 AND $3 = ANY (attnames::text[]) ORDER BY pubname
"""
_SUBSCRIBED = (
    "SELECT DISTINCT srrelid::bigint FROM pg_subscription_rel WHERE srrelid = ANY ($1::bigint[]::oid[])"
)
_STOPPED = """
SELECT s.subname FROM pg_stat_subscription AS s
WHERE EXISTS (SELECT FROM pg_subscription_rel WHERE srsubid = s.subid AND srrelid = $1::oid)
GROUP BY s.subname HAVING count(s.pid) = 0 ORDER BY s.subname
"""
_SEQUENCE = """
SELECT s.seqincrement, s.seqmax, s.seqrelid::regclass::text, s.seqstart,
       has_sequence_privilege(s.seqrelid, 'SELECT')
FROM pg_sequence AS s WHERE s.seqrelid = $1::oid
"""
COLUMN_LISTS_SINCE = 150000
MOST_OF_INTEGER = 2**31 - 1
"""The greatest id of a column of this type, and of its sequence."""


def check_origin(session: Session, catalogue: Catalogue, layout: Layout, origin: Origin) -> Iterator[Finding]:
    """Looks at an outbox that has the columns of several clusters."""
    connection = session.connection
    yield _default(catalogue, layout, origin)
    yield from _null(catalogue, layout, origin)
    yield _index(layout, origin)
    yield _ids(connection, layout, origin)
    yield from _replication(connection, catalogue, layout, origin)
    if origin.arrival:
        yield from _arrival(connection, layout, origin)
    yield _orphans(session, layout, origin)


def _default(catalogue: Catalogue, layout: Layout, origin: Origin) -> Finding:
    subject = "cluster of new rows"
    columns = catalogue.columns(layout.oid)
    column = columns[origin.column]
    if writes(column, origin.own):
        return Finding(Level.OK, subject, f"cluster {origin.own}, by the default of {origin.column}")
    fault = default_fault(layout.outbox, origin, columns)
    return Finding(Level.ERROR, subject, fault.message, fault.cure)


def _null(catalogue: Catalogue, layout: Layout, origin: Origin) -> Iterator[Finding]:
    if not catalogue.columns(layout.oid)[origin.column].required:
        name = quoted(origin.column)
        yield Finding(
            Level.ERROR,
            "cluster of rows",
            f"{origin.column} can be null: a row without a number is of no cluster, and nobody takes it",
            f"UPDATE {layout.outbox} SET {name} = {origin.existing} WHERE {name} IS NULL; "
            f"ALTER TABLE {layout.outbox} ALTER COLUMN {name} SET NOT NULL",
        )


def _index(layout: Layout, origin: Origin) -> Finding:
    subject = "cluster index"
    if origin.column in layout.indexed:
        return Finding(Level.OK, subject, f"on {origin.column} and id")
    return Finding(
        Level.WARNING,
        subject,
        f"no index begins with {origin.column} and id: every mark reads the rows of all clusters",
        f"run 'outbox init', or: {PostgresIdiom().create_index(layout.outbox, (origin.column, 'id'))}",
    )


def _ids(connection: psycopg.Connection[Any], layout: Layout, origin: Origin) -> Finding:
    subject, first, column = "ids of clusters", first_id(origin.own), quoted(origin.column)
    if layout.sequence is None:
        return Finding(
            Level.WARNING,
            subject,
            "no sequence of the table's own gives out ids, so that clusters may give out the same",
            f"give each cluster ids of its own; this one those from {first}",
        )
    # Before the sequence, which may go on meanwhile.
    of_own = f"FROM {layout.outbox} WHERE {column} = $1 ORDER BY {column} DESC, id DESC LIMIT 1"
    newest = _rows(connection, f"SELECT id {of_own}", origin.own)
    increment, most, name, following, readable = _rows(connection, _SEQUENCE, layout.sequence)[0]
    latest = None
    if readable:
        # Also where the sequence was restarted and has given out none since.
        following, used = _rows(connection, f"SELECT last_value, is_called FROM {name}")[0]
        if used:
            latest, following = following, following + increment
    if newest and latest is not None and newest[0][0] > latest:
        return Finding(
            Level.ERROR,
            subject,
            f"the table has rows of this cluster up to id {newest[0][0]}, and its sequence is at {latest}, "
            "as after a restore: new rows will have ids that exist, or that marks have passed",
            f"SELECT setval('{name}', {newest[0][0]})",
        )
    if first <= following < first + IDS_OF_CLUSTER:
        return Finding(Level.OK, subject, "the sequence gives out ids that no other cluster does")
    cure = f"SELECT setval('{name}', {first})"
    if most < first:
        cure = f"ALTER SEQUENCE {name} AS bigint MAXVALUE {first + IDS_OF_CLUSTER - 1}; {cure}"
        if most <= MOST_OF_INTEGER:
            cure = f"ALTER TABLE {layout.outbox} ALTER COLUMN id TYPE bigint; {cure}"
    return Finding(
        Level.WARNING,
        subject,
        f"the next id is {following}, and those of cluster {origin.own} begin at {first}: another cluster "
        "may give out the same",
        cure,
    )


def _replication(
    connection: psycopg.Connection[Any], catalogue: Catalogue, layout: Layout, origin: Origin
) -> Iterator[Finding]:
    subject = "replication"
    found = [catalogue.find(table) for table in layout.tables[1:]]
    beside = {each.oid: each.name for each in found if each}
    published = _rows(connection, _PUBLISHED, [layout.oid, *beside])
    yield from (missing := list(_unpublished(connection, layout, origin)))
    well = not missing
    for publication, _, updates, _, oid in published:
        if oid in beside:
            well = False
            yield Finding(
                Level.ERROR,
                subject,
                f"publication {publication} has {beside[oid]}, which belongs to one cluster only",
                f"ALTER PUBLICATION {quoted(publication)} DROP TABLE {beside[oid]}, or publish single tables",
            )
        elif updates:
            well = False
            yield Finding(
                Level.WARNING,
                subject,
                f"publication {publication} publishes updates of {layout.outbox}: each mark is replicated, "
                "and takes rows from the marks of other clusters",
                f"ALTER PUBLICATION {quoted(publication)} SET (publish = 'insert, delete')",
            )
    for (oid,) in _rows(connection, _SUBSCRIBED, [*beside]):
        well = False
        yield Finding(
            Level.ERROR,
            subject,
            f"a subscription writes {beside[oid]}, which belongs to one cluster only",
            f"drop {beside[oid]} from the publication, then ALTER SUBSCRIPTION … REFRESH PUBLICATION",
        )
    for (subscription,) in _rows(connection, _STOPPED, layout.oid):
        well = False
        yield Finding(
            Level.WARNING,
            subject,
            f"subscription {subscription} does not run: rows and purges of another cluster do not come",
            f"ALTER SUBSCRIPTION {quoted(subscription)} ENABLE; or see the server's log",
        )
    if well:
        yield Finding(Level.OK, subject, "neither marks nor fence nor dead letters leave this cluster")


def _unpublished(connection: psycopg.Connection[Any], layout: Layout, origin: Origin) -> Iterator[Finding]:
    """Says what publications of the outbox leave out, and should not."""
    published = _rows(connection, _PUBLISHED, [layout.oid])
    listed: set[str] = set()
    if connection.info.server_version >= COLUMN_LISTS_SINCE:
        listed = {row[0] for row in _rows(connection, _LISTED, *layout.outbox, origin.column)}
        for publication, inserts, *_ in published:
            if inserts and publication not in listed:
                yield Finding(
                    Level.ERROR,
                    "replication",
                    f"publication {publication} leaves out the column {origin.column}: every other cluster "
                    "takes this one's rows for its own, and delivers them, too",
                    f"ALTER PUBLICATION {quoted(publication)} SET TABLE {layout.outbox} (…), with "
                    f"{quoted(origin.column)} among the columns",
                )
    if any(inserts for _, inserts, *_ in published) and not any(deletes for *_, deletes, _ in published):
        yield Finding(
            Level.WARNING,
            "replication",
            f"no publication publishes deletions of {layout.outbox}: what is delivered here stays in the "
            "other clusters, and each delivers it again once it is old enough",
            f"ALTER PUBLICATION {quoted(published[0][0])} SET (publish = 'insert, delete')",
        )


def _arrival(connection: psycopg.Connection[Any], layout: Layout, origin: Origin) -> Iterator[Finding]:
    if connection.info.server_version < COLUMN_LISTS_SINCE:
        return
    for (publication,) in _rows(connection, _LISTED, *layout.outbox, origin.arrival):
        yield Finding(
            Level.WARNING,
            "arrival",
            f"publication {publication} has the column {origin.arrival}: rows would have arrived when they "
            "were written, by the clock of their own cluster",
            f"leave {origin.arrival} out of the publication's column list",
        )


def _orphans(session: Session, layout: Layout, origin: Origin) -> Finding:
    indexes = {column: column for column in layout.indexed}
    if origin.column in indexes:  # otherwise it might take a look at every row
        counted = Origins(session, Statements(session.idiom, layout.tables), origin, indexes)
        with session.transaction("look for rows of each cluster", reads=True):
            if found := orphans(origin, counted.backlogs()):
                return found
    return Finding(Level.OK, "orphans", "every row is of a cluster that is known")


def _rows(connection: psycopg.Connection[Any], query: str, *parameters: object) -> list[tuple[Any, ...]]:
    return connection.execute(query, parameters).fetchall()
