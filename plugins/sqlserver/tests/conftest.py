"""Where the conformance suite has its server from. Without one it is not collected, and the run says so."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from outbox_sqlserver import SqlServerDialect, SqlServerOptions
from outbox_testkit.conformance import OutboxUnderTest

ADDRESS, CONTAINERS, NAME = "OUTBOX_TEST_SQLSERVER", "OUTBOX_TEST_CONTAINERS", "sqlserver"
IMAGE = "mcr.microsoft.com/mssql/server:2022-latest"
WANTED = bool(os.environ.get(ADDRESS)) or NAME in os.environ.get(CONTAINERS, "").split(",")

collect_ignore = [] if WANTED else ["test_sqlserver_conformance.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not WANTED:
        terminalreporter.write_line(
            f"not run here: the conformance suite on SQL Server; set {ADDRESS} or {CONTAINERS}={NAME}"
        )


@pytest.fixture(scope="session")
def sqlserver_address() -> Iterator[str]:
    """The address of a database with READ_COMMITTED_SNAPSHOT, where tables may be created."""
    if address := os.environ.get(ADDRESS):
        yield address
        return
    from testcontainers.community.mssql import SqlServerContainer  # noqa: PLC0415 - loads Docker's client

    password = f"Aa1-{secrets.token_hex(12)}"
    with SqlServerContainer(IMAGE, password=password) as container:
        server = f"Server={container.get_container_host_ip()},{container.get_exposed_port(1433)};Uid=sa"
        server = f"{server};Pwd={password};TrustServerCertificate=yes"
        with plain(f"{server};Database=master") as connection:
            connection.autocommit = True  # a database is made outside of transactions
            for statement in ("CREATE DATABASE shop", "ALTER DATABASE shop SET READ_COMMITTED_SNAPSHOT ON"):
                connection.cursor().execute(statement)
        yield f"{server};Database=shop"


@pytest.fixture
def outbox(sqlserver_address: str) -> Iterator[OutboxUnderTest]:
    """An outbox of the test's own, in tables that are dropped afterwards."""
    name = f"t{uuid4().hex[:10]}"
    options = {
        "data_source": sqlserver_address,
        "table": name,
        "fence_table": f"{name}_fence",
        "dead_letter_table": f"{name}_letters",
        "journal_table": f"{name}_journal",
    }
    yield OutboxUnderTest(
        "sqlserver",
        options,
        bytes_values={"value_type": "bytes"},
        rename="EXEC sp_rename '{table}', '{name}'",
        write_id="SET IDENTITY_INSERT {table} ON; {insert}; SET IDENTITY_INSERT {table} OFF",
        lease_ahead="DATEADD(hour, 1, renewed_at)",
    )
    with plain(sqlserver_address) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM sys.tables WHERE CHARINDEX(%s, name) = 1", (name,))
        for (table,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE [{table}]")
        connection.commit()


def plain(address: str) -> Any:
    return SqlServerDialect(SqlServerOptions(data_source=address)).open_as_application()
