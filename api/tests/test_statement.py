"""The insert in every parameter style, and drivers that use them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from outbox_api.application.connections import require_transaction
from outbox_api.application.target import find_target
from outbox_api.support.statement import Statement, Style
from outbox_servers.services import connect_mysql

SQL = 'INSERT INTO "5%: {{x}}" VALUES ({key}, {value}, {key})'


@pytest.mark.parametrize(
    ("style", "text"),
    [
        (Style.PYFORMAT, 'INSERT INTO "5%%: {x}" VALUES (%(key)s, %(value)s, %(key)s)'),
        (Style.FORMAT, 'INSERT INTO "5%%: {x}" VALUES (%s, %s, %s)'),
        (Style.NAMED, 'INSERT INTO "5%: {x}" VALUES (:key, :value, :key)'),
        (Style.QMARK, 'INSERT INTO "5%: {x}" VALUES (?, ?, ?)'),
        (Style.NUMERIC, 'INSERT INTO "5%: {x}" VALUES (:1, :2, :3)'),
        (Style.SQLALCHEMY, 'INSERT INTO "5%\\: {x}" VALUES (:key, :value, :key)'),
    ],
)
def test_parameters_are_written_in_the_style(style: Style, text: str) -> None:
    statement = Statement(SQL, style)
    assert statement.text == text
    values = {"key": 1, "value": 2}
    assert statement.arguments(values) == (values if style.by_name else (1, 2, 1))


def test_a_driver_with_positional_parameters() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE "5%: {x}" (a, b, c)')
    for through in (connection, connection.cursor()):
        target = find_target(through, lambda style, rename=str: Statement(rename(SQL), style))
        target.execute([{"key": 1, "value": 2}])
        target.execute([{"key": 3, "value": 4}, {"key": 5, "value": 6}])
    assert connection.in_transaction
    assert len(connection.execute('SELECT * FROM "5%: {x}"').fetchall()) == 6
    connection.rollback()
    assert connection.execute('SELECT * FROM "5%: {x}"').fetchall() == []
    connection.close()


def test_sqlite_without_transactions_is_refused() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    with pytest.raises(ValueError, match="autocommit"):
        require_transaction(connection)
    connection.execute("BEGIN")
    require_transaction(connection)
    connection.close()


@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
def test_a_cursor_keeps_its_result_and_its_last_id(request: pytest.FixtureRequest, kind: str) -> None:
    connection: Any = (
        sqlite3.connect(":memory:")
        if kind == "sqlite"
        else connect_mysql(request.getfixturevalue("mariadb_dsn"))
    )
    with closing(connection), closing(connection.cursor()) as cursor:
        number = "INTEGER PRIMARY KEY" if kind == "sqlite" else "INTEGER PRIMARY KEY AUTO_INCREMENT"
        for table in ("one", "two"):
            cursor.execute(f"CREATE TABLE {table} (id {number}, a INTEGER)")
        cursor.execute("INSERT INTO one (id, a) VALUES (7, 1), (8, 2)")
        last = cursor.lastrowid
        sql = "INSERT INTO two (a) VALUES ({a})"
        target = find_target(cursor, lambda style, rename=str: Statement(rename(sql), style))
        assert target.execute([{"a": 1}]) == 1
        target.execute([{"a": 2}, {"a": 3}])
        assert cursor.lastrowid == last
        cursor.execute("SELECT a FROM one ORDER BY a")
        target.execute([{"a": 4}])
        assert [row[0] for row in cursor.fetchall()] == [1, 2]
        cursor.execute("SELECT COUNT(*) FROM two")
        assert cursor.fetchone()[0] == 4
