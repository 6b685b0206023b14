"""A leader that stands still while it receives a mark's rows: the server waits, with the fence locked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from outbox_api import UNBOUNDED, DriverError, LeadershipLost
from outbox_postgres import statements, table
from outbox_postgres.marking import Wanted
from outbox_postgres.settled import FIRST
from outbox_servers.services import PostgresServer
from psycopg.conninfo import make_conninfo

from .outbox_hands import Hand, MakeOutbox, Outbox, ask, prepare, said, until


def freeze(outbox: Outbox, hand: Hand) -> None:
    """Marks far more than sockets hold, and reads nothing of it, as a process that was stopped."""
    # Compressed it would not be much.
    outbox.admin.execute("ALTER TABLE outbox ALTER kafka_value SET STORAGE EXTERNAL")
    outbox.admin.execute(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value) "
        "SELECT 'orders', 'k', repeat('x', 20000) FROM generate_series(1, 3000)"
    )
    mark = hand.table._marks.sql.mark(0, lane=False, bounded=False)
    claim = hand.table._marks.claim(hand.fence, hand.leader, Wanted(3000, UNBOUNDED), FIRST)
    connection = hand.table._connection
    connection.pgconn.send_query(prepare(connection, mark, claim).encode())
    connection.pgconn.flush()
    until(lambda: state(outbox, hand) == "ClientWrite")


def state(outbox: Outbox, hand: Hand) -> str | None:
    """What the session waits for; ``gone`` when it was ended."""
    pid = hand.table._connection.info.backend_pid
    return str(
        ask(
            outbox.admin,
            "SELECT CASE count(*) WHEN 0 THEN 'gone' ELSE coalesce(max(wait_event), 'none') END "
            "FROM pg_stat_activity WHERE pid = %s",
            pid,
        )
    )


@pytest.fixture
def socket_file() -> Iterator[str]:
    """The data source of a server that is reached through a socket file."""
    # A path of a test's own would be too long.
    with TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o777)
        with PostgresServer(settings={"unix_socket_directories": directory}) as server:
            yield make_conninfo(server.dsn, host=directory)


def test_the_server_ends_a_session_whose_client_does_not_read(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask(outbox.connect()._connection, "SHOW tcp_user_timeout") == "10000"
    monkeypatch.setattr(
        statements,
        "SESSION",
        statements.SESSION.replace("'tcp_user_timeout', '10s'", "'tcp_user_timeout', '5s'"),
    )
    hand = outbox.lead()
    freeze(outbox, hand)
    until(lambda: state(outbox, hand) == "gone")
    assert outbox.lead().ids(5) == [1, 2, 3, 4, 5]
    assert said(caplog) == []


def test_a_bump_ends_a_session_that_the_server_does_not(
    make_outbox: MakeOutbox,
    socket_file: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(table, "STALLED_AFTER", 0.3)
    outbox = make_outbox(socket_file, lock_timeout=0.5)
    outbox.dialect.create()
    hand = outbox.lead()
    assert ask(hand.table._connection, "SHOW tcp_user_timeout") == "0"
    freeze(outbox, hand)
    with caplog.at_level(logging.WARNING, "outbox.postgres"):
        assert outbox.lead().ids(5) == [1, 2, 3, 4, 5]
    pid = hand.table._connection.info.backend_pid
    assert f"ended server process {pid} (outbox), which held the fence" in caplog.text
    with pytest.raises((LeadershipLost, DriverError)):
        hand.purge(1)


def test_a_bump_ends_nobody_who_holds_the_fence_for_another_reason(
    make_outbox: MakeOutbox, outbox: Outbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table, "STALLED_AFTER", 0.0)
    impatient = make_outbox(lock_timeout=0.3)
    holder = outbox.session()
    outbox.lead()
    holder.execute("SELECT FROM outbox_fence FOR SHARE")
    with pytest.raises(DriverError, match="another transaction holds the lock"):
        impatient.lead()
    holder.commit()
    assert impatient.lead().mark() == []
    assert said(caplog) == []
