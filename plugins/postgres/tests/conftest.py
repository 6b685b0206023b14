"""An outbox of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from outbox_postgres import settled
from outbox_postgres.rows import PostgresDeadLetters
from outbox_servers.services import PostgresServer
from psycopg.conninfo import make_conninfo

from .outbox_hands import BatchHand, Hand, MakeOutbox, Outbox


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[PostgresServer]:
    """A server of this process's own, whose transactions and locks are counted; it begins none by itself."""
    with PostgresServer(settings={"autovacuum": "off"}) as server:
        yield server


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def make_outbox(request: pytest.FixtureRequest, stack: ExitStack) -> MakeOutbox:
    """Makes an outbox of a data source, by default the test's own database, without creating its tables."""

    def make(dsn: str | None = None, **options: Any) -> Outbox:
        return Outbox(dsn or request.getfixturevalue("postgres_dsn"), stack, **options)

    return make


@pytest.fixture
def outbox(make_outbox: MakeOutbox) -> Outbox:
    box = make_outbox()
    box.dialect.create()
    return box


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists before every mark, and never looks at the head for safety's sake."""
    monkeypatch.setattr(settled, "LISTING_INTERVAL", 0.0)
    monkeypatch.setattr(settled, "HEAD_INTERVAL", 1e9)


@pytest.fixture
def hand(outbox: Outbox) -> Hand:
    return outbox.lead()


@pytest.fixture
def lane(outbox: Outbox) -> BatchHand:
    """The only lane's hand."""
    return outbox.lead_batches()[0]


@pytest.fixture
def letters(outbox: Outbox) -> PostgresDeadLetters:
    return outbox.dead_letters()


@pytest.fixture
def user(outbox: Outbox) -> Iterator[tuple[str, str]]:
    """A role with no rights but to log in, and the data source it logs in with."""
    name = f"reader_{uuid4().hex[:8]}"
    outbox.admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 's3cret'")
    yield name, make_conninfo(outbox.dsn, user=name, password="s3cret")
    outbox.admin.execute(f"DROP OWNED BY {name}")
    outbox.admin.execute(f"DROP ROLE {name}")
