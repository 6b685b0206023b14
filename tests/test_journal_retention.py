"""The statements of docs/capacity.md that delete old entries of the journal delete those alone."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import sqlglot
from outbox_api import Action, Seam, find

PAGE = (Path(__file__).parents[1] / "docs" / "capacity.md").read_text("utf-8")
STATEMENTS = dict(re.findall(r"^\| ([\w ,]+) \| `(DELETE FROM outbox_journal .*);` \|$", PAGE, re.MULTILINE))
SOURCES = {
    "postgres": ("postgres_dsn", "PostgreSQL"),
    "mysql": ("mysql_dsn", "MySQL, MariaDB"),
    "mariadb": ("mariadb_dsn", "MySQL, MariaDB"),
    "sqlite": ("tmp_path", "SQLite"),
}


@pytest.mark.parametrize("server", SOURCES)
def test_old_entries_are_deleted(server: str, request: pytest.FixtureRequest) -> None:
    fixture, title = SOURCES[server]
    source = request.getfixturevalue(fixture)
    driver = find(Seam.DIALECT, server.replace("mariadb", "mysql"))
    dialect = driver.create(
        driver.options(data_source=str(source / "box.db") if server == "sqlite" else source)
    )
    dialect.create()
    with closing(dialect.journal()) as journal, closing(dialect.stash_connection()) as connection:
        for verb in ("older", "younger", "today"):
            journal.end(journal.begin(Action("somebody", "cli", verb)), "done")
        statement = STATEMENTS[title]
        cursor = connection.cursor()
        for verb, days in (("older", "401"), ("younger", "399")):
            instant = statement.partition(" begun < ")[2].replace("400", days)
            cursor.execute(f"UPDATE outbox_journal SET begun = {instant} WHERE verb = '{verb}'")
        cursor.execute(statement)
        connection.commit()
        assert [entry.action.verb for entry in journal.entries()] == ["today", "younger"]


@pytest.mark.parametrize(("title", "language"), [("Oracle", "oracle"), ("SQL Server", "tsql")])
def test_statements_for_servers_that_are_not_here_can_be_parsed(title: str, language: str) -> None:
    [tree] = sqlglot.parse(STATEMENTS[title], read=language)
    assert isinstance(tree, sqlglot.exp.Delete)
