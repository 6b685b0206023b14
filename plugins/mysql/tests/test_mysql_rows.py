"""Rows are read as PyMySQL reads them, in less time."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box

ODD = [
    "NULL, '', 0, -9223372036854775808, 18446744073709551615",
    "1.5, 2.5e0, CAST(1 AS DECIMAL(30, 10)), DATE '2026-01-02', TIME '01:02:03.5'",
    "TIMESTAMP '2026-01-02 03:04:05.678901', 'Grüße 🌍', X'00FF', CAST('[\"ü\", null]' AS JSON), b'101'",
    *(f"REPEAT('x', {length}), 1" for length in (250, 251, 252, 65_535, 65_536, 70_000)),
    *(f"REPEAT('é', {length}), NULL, 1" for length in (125, 126, 40_000)),
    "REPEAT('x', 17000000), 'behind a packet that is split'",
]


@pytest.mark.parametrize("columns", ODD, ids=range(len(ODD)))
def test_a_row_is_what_pymysql_makes_of_it(
    under: OutboxUnderTest, columns: str, request: pytest.FixtureRequest
) -> None:
    if "AS JSON" in columns and "mariadb" in request.node.name:
        columns = columns.replace("AS JSON", "AS CHAR")
    dialect = Box(under, None).dialect  # type: ignore[arg-type]  # nothing is opened by it
    with closing(dialect.open()) as quick, closing(dialect.open_as_application()) as plain:
        rows = [read(connection, f"SELECT {columns}") for connection in (quick, plain)]
    assert rows[0] == rows[1]
    assert [type(value) for value in rows[0][0]] == [type(value) for value in rows[1][0]]


def read(connection: Any, sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00'")
        cursor.execute(sql)
        return cursor.fetchall()
