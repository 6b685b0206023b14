"""The rows of a portable outbox by their clusters of origin."""
# ruff: noqa: S608 - names come quoted from the idiom, and every other value is a parameter

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outbox_sdk.affinity import ColumnIs, Origin
from outbox_sdk.backlog import MAX_COUNTED, OriginBacklog
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.sources import Source, sources
from outbox_sdk.portable.statements import Statements


class Origins:
    """Counts the rows of each cluster, within the caller's transaction, by the index of the column.

    Args:
        session: The connection.
        sql: The statements of the outbox.
        origin: How rows tell where they were written.
        indexes: As for :class:`Statements`.
    """

    def __init__(self, session: Session, sql: Statements, origin: Origin, indexes: Mapping[str, str]) -> None:
        self._session = session
        [source] = sources(session.idiom, [ColumnIs(origin.column, origin.own)], indexes)
        self.statements = OriginStatements(sql, source)

    def backlogs(self) -> list[OriginBacklog]:
        """Returns how many rows of each cluster there are, ordered by cluster."""
        return [found for cluster in self._clusters() if (found := self._backlog(cluster))]

    def spread(self) -> int:
        """Returns how many rows there are at most, by the ranges of each cluster's ids."""
        ranges = [self._session.fetch(self.statements.spread, eligible=each)[0] for each in self._clusters()]
        return sum(int(last) - int(first) + 1 for first, last in ranges if first is not None)

    def _clusters(self) -> Iterator[Any]:
        """Leaps from each cluster to the next: one look into the index for each."""
        statement, values = self.statements.first, dict[str, Any]()
        while (found := self._session.fetch(statement, **values)[0][0]) is not None:
            yield found
            statement, values = self.statements.next, {"eligible": found}

    def _backlog(self, cluster: Any) -> OriginBacklog | None:
        [(count,)] = self._session.fetch(self.statements.count, eligible=cluster, limit=MAX_COUNTED + 1)
        head = self._session.fetch(self.statements.oldest, eligible=cluster)
        if not head:
            return None  # they are gone by now
        records, age = int(count), head[0][0]
        return OriginBacklog(
            cluster=int(cluster),
            records=min(max(records, 1), MAX_COUNTED),
            exact=records <= MAX_COUNTED,
            oldest=0.0 if age is None else float(age),
        )


class OriginStatements:
    """The statements about rows of the cluster ``{eligible}``.

    Args:
        sql: The outbox's other statements.
        source: The rows of a cluster.

    Attributes:
        first: Returns the lowest number of a cluster, or null.
        next: Returns the next higher number, or null.
        count: Counts rows of a cluster, up to ``{limit}``.
        oldest: Returns the age of the cluster's row with the lowest id.
        spread: Returns the cluster's lowest and highest id, or nulls.
    """

    def __init__(self, sql: Statements, source: Source) -> None:
        idiom, seen = sql.idiom, sql.seen_by(source)
        column, own = source.column, source.condition
        self.first = f"SELECT MIN({column}) FROM {seen}"
        self.next = f"{self.first} WHERE {column} > {{eligible}}"
        sample = idiom.limit(f"SELECT id FROM {seen} WHERE {own} ORDER BY {source.order}", "{limit}")
        self.count = f"SELECT COUNT(*) FROM ({sample}) counted"
        age = idiom.age_seconds("create_time")
        self.oldest = idiom.limit(f"SELECT {age} FROM {seen} WHERE {own} ORDER BY {source.order}", "1")
        self.spread = f"SELECT MIN(id), MAX(id) FROM {seen} WHERE {own}"
