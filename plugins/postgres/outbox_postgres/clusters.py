"""What an outbox says about clusters: the rows of each, and which are taken over deliberately."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from datetime import datetime

from outbox_sdk import Origin, OriginBacklog, Takeover
from outbox_sdk.affinity import MAX_CLUSTER
from outbox_sdk.backlog import MAX_COUNTED
from outbox_sdk.portable.columns import TAKEOVER

from outbox_postgres.layout import Layout
from outbox_postgres.names import quoted
from outbox_postgres.predicates import AGE
from outbox_postgres.session import Session
from outbox_postgres.settled import FIRST
from outbox_postgres.sql_ascii import stored

REASON_LENGTH = 200
"""How many characters of a reason are kept."""

_TAKEOVERS = f"lane BETWEEN {TAKEOVER - MAX_CLUSTER} AND {TAKEOVER - 1}"


class Clusters:
    """Reads the rows of each cluster, and keeps the takeovers, over one connection.

    Args:
        session: The connection.
        layout: The outbox as found.
        origin: How its rows tell where they were written; ``None`` if they do not.
    """

    def __init__(self, session: Session, layout: Layout, origin: Origin | None) -> None:
        self._session = session
        self._name = layout.name
        self._fence = layout.fence
        self._origins = origins_query(str(layout.outbox), origin.column) if origin else ""

    def origins(self) -> list[OriginBacklog]:
        """Returns how many records of each cluster wait; see :meth:`outbox_sdk.OutboxTable.origins`."""
        if not self._origins:
            return []
        rows = self._session.fetch(self._origins, (MAX_COUNTED + 1,), "read the rows of each cluster")
        return [
            OriginBacklog(cluster, min(count, MAX_COUNTED), exact=count <= MAX_COUNTED, oldest=oldest)
            for cluster, count, oldest in rows
        ]

    def takeovers(self) -> list[Takeover]:
        """Returns the takeovers that have begun and not ended, ordered by cluster."""
        statement = f"""
            SELECT {TAKEOVER} - lane, holder, since FROM {self._fence}
            WHERE name = $1 AND {_TAKEOVERS} AND token = 1 ORDER BY lane DESC"""
        rows = self._session.fetch(statement, (self._name,), "read the takeovers")
        return [Takeover(*row) for row in rows]

    def begin(self, cluster: int, reason: str) -> bool:
        """Stores durably that a takeover has begun; returns whether there was none."""
        statement = f"""
            INSERT INTO {self._fence} AS f (name, lane, lanes, token, attempt, holder, since)
            VALUES ($1, $2, 0, 1, 0, $3, clock_timestamp())
            ON CONFLICT (name, lane) DO UPDATE SET token = 1, holder = excluded.holder, since = excluded.since
            WHERE f.token <> 1 RETURNING lane"""
        kept = stored(self._session.connection, reason)[:REASON_LENGTH]
        parameters = (self._name, TAKEOVER - cluster, kept)
        return bool(self._session.fetch(statement, parameters, "begin a takeover"))

    def end(self, cluster: int) -> bool:
        """Stores durably that a takeover has ended; returns whether there was one."""
        statement = f"""
            UPDATE {self._fence} SET token = 0, since = clock_timestamp()
            WHERE name = $1 AND lane = $2 AND token = 1 RETURNING lane"""
        return bool(self._session.fetch(statement, (self._name, TAKEOVER - cluster), "end a takeover"))

    def now(self) -> datetime:
        """Returns the present time by the database's clock."""
        moment: datetime = self._session.fetch("SELECT clock_timestamp()", (), "read the clock")[0][0]
        return moment


def numbers_query(outbox: str, column: str) -> str:
    """Returns the start of a query, ``numbers`` of clusters that have rows: a look at the index for each."""
    name = quoted(column)
    return f"""
        WITH RECURSIVE numbers AS (
            (SELECT {name} AS cluster FROM {outbox} ORDER BY {name} LIMIT 1)
            UNION ALL
            SELECT (SELECT {name} FROM {outbox} WHERE {name} > cluster ORDER BY {name} LIMIT 1)
            FROM numbers WHERE cluster IS NOT NULL
        )"""


def origins_query(outbox: str, column: str) -> str:
    """Returns the query of the rows of each cluster: its number, how many up to $1, the age of the first."""
    name = quoted(column)
    return f"""
        {numbers_query(outbox, column)}
        SELECT cluster::int, counted.number, greatest(0, oldest.age)
        FROM numbers CROSS JOIN LATERAL (
            SELECT count(*) AS number FROM (SELECT FROM {outbox} WHERE {name} = cluster LIMIT $1) AS sample
        ) AS counted CROSS JOIN LATERAL (
            -- As ``Source.between``: no index but that of the clusters has this order.
            SELECT {AGE} AS age FROM {outbox}
            WHERE ({name}, id) >= (cluster, {FIRST}) AND {name} <= cluster ORDER BY {name}, id LIMIT 1
        ) AS oldest
        WHERE cluster IS NOT NULL ORDER BY cluster"""
