"""Where the conformance suite has its Oracle from. Without one it is not collected, and the run says so."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from outbox_oracle import OracleDialect, OracleOptions
from outbox_testkit.conformance import OutboxUnderTest

ADDRESS, CONTAINERS, NAME = "OUTBOX_TEST_ORACLE", "OUTBOX_TEST_CONTAINERS", "oracle"
IMAGE = "gvenzl/oracle-free:23-slim"
WANTED = bool(os.environ.get(ADDRESS)) or NAME in os.environ.get(CONTAINERS, "").split(",")

collect_ignore = [] if WANTED else ["test_oracle_conformance.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not WANTED:
        terminalreporter.write_line(
            f"not run here: the conformance suite on Oracle; set {ADDRESS} or {CONTAINERS}={NAME}"
        )


@pytest.fixture(scope="session")
def oracle_address() -> Iterator[str]:
    """The address of a user that may create tables."""
    if address := os.environ.get(ADDRESS):
        yield address
        return
    from testcontainers.community.oracle import OracleDbContainer  # noqa: PLC0415 - loads Docker's client

    with OracleDbContainer(IMAGE, username="outbox", password=secrets.token_hex(12)) as container:
        yield container.get_connection_url()


@pytest.fixture
def outbox(oracle_address: str) -> Iterator[OutboxUnderTest]:
    """An outbox of the test's own, in tables that are dropped afterwards."""
    name = f"t{uuid4().hex[:10]}"
    options = {
        "data_source": oracle_address,
        "table": name,
        "fence_table": f"{name}_fence",
        "dead_letter_table": f"{name}_letters",
    }
    under = OutboxUnderTest("oracle", options, bytes_values={"value_type": "bytes"})
    yield under
    _drop(oracle_address, name.upper())


def _drop(address: str, prefix: str) -> None:
    with (
        OracleDialect(OracleOptions(data_source=address)).open_plain() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "SELECT table_name FROM user_tables WHERE table_name LIKE :prefix", {"prefix": f"{prefix}%"}
        )
        for (table,) in cursor.fetchall():
            with suppress(Exception):
                cursor.execute(f'DROP TABLE "{table}" PURGE')
