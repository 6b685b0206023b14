"""The rows of an outbox by their clusters of origin."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from outbox_postgres.names import quoted
from outbox_postgres.predicates import AGE
from outbox_postgres.settled import FIRST


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
