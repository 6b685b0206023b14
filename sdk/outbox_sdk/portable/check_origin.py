"""What ``outbox check`` says of the columns by which rows tell where they were written."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from outbox_sdk.affinity import Origin
from outbox_sdk.backlog import OriginBacklog
from outbox_sdk.finding import Finding, Level
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.indexes import find_index
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.origin_columns import OriginColumns
from outbox_sdk.portable.origins import Origins
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.statements import Statements
from outbox_sdk.portable.tables import Tables

SUBJECT = "clusters"


def origin_findings(
    session: Session, tables: Tables, origin: Origin, found: Collection[str]
) -> Iterator[Finding]:
    """Checks an outbox that exists.

    Args:
        session: The connection.
        tables: The tables of the outbox, which itself exists.
        origin: How rows are to tell where they were written.
        found: The table's columns, in lower case.
    """
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
