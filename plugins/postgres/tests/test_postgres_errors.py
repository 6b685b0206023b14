"""Which errors are final, which may pass by themselves, and that none tells a secret."""

from __future__ import annotations

import socket
import traceback

import psycopg
import pytest
from outbox_api import DriverError, LeadershipLost
from outbox_postgres.errors import retryable
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox
from .test_postgres_connect import refusal


def test_a_wrong_password_is_final_and_shows_nowhere(
    make_outbox: MakeOutbox, outbox: Outbox, user: tuple[str, str]
) -> None:
    name, _ = user
    dsn = make_conninfo(outbox.dsn, user=name, password="wr0ngs3cret")
    error = refusal(make_outbox(dsn))
    if "authentication failed" not in str(error):
        pytest.fail(f"the server asks for no password, so this cannot be tested: {error}")
    assert not error.retryable
    assert "wr0ng" not in "".join(traceback.format_exception(error))


def test_a_password_that_was_not_encoded_in_a_url_shows_nowhere(make_outbox: MakeOutbox) -> None:
    error = refusal(make_outbox("postgresql://u:top@s3cret/5:x@nowhere.invalid:1/d"))
    shown = "".join(traceback.format_exception(error))
    assert "s3cret" not in shown.replace("postgresql://u:top@s3cret/5:x@nowhere.invalid:1/d", "")


def test_a_missing_database_or_user_is_final(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    assert not refusal(make_outbox(make_conninfo(outbox.dsn, dbname="nowhere"))).retryable
    assert not refusal(make_outbox(make_conninfo(outbox.dsn, user="nobody_at_all"))).retryable


def test_no_server_is_retryable_and_says_where(make_outbox: MakeOutbox) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = refusal(make_outbox(f"host=127.0.0.1 port={port} user=u password=s3cret dbname=shop"))
    assert error.retryable
    assert f"cannot connect in database shop at 127.0.0.1:{port}" in str(error)
    assert "s3cret" not in str(error)


def test_a_server_that_never_answers_is_given_up(make_outbox: MakeOutbox) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        error = refusal(make_outbox(f"host=127.0.0.1 port={port} user=u dbname=d", connect_timeout=2.0))
    assert error.retryable
    assert "timeout" in str(error)


def test_a_read_only_server_is_retryable(outbox: Outbox) -> None:
    outbox.set_default("default_transaction_read_only", "on")
    error = refusal(outbox)
    assert error.retryable
    assert "read-only" in str(error)


def test_a_lost_connection_is_retryable(outbox: Outbox) -> None:
    hand = outbox.lead()
    outbox.admin.execute("SELECT pg_terminate_backend(%s)", (hand.table._connection.info.backend_pid,))
    with pytest.raises(DriverError) as caught:
        hand.mark()
    assert caught.value.retryable
    assert outbox.connect().bump(1, "again") > hand.fence.token


def test_a_statement_that_takes_too_long_is_retryable(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    outbox.fill(1)
    box = make_outbox(statement_timeout=2.0)
    hand = box.lead()
    outbox.admin.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;"
        "CREATE TRIGGER slow BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    with pytest.raises(DriverError, match="statementTimeout") as caught:
        hand.mark()
    assert caught.value.retryable


def test_a_table_dropped_under_the_harvester_is_final(outbox: Outbox) -> None:
    hand = outbox.lead()
    outbox.admin.execute("DROP TABLE outbox")
    with pytest.raises(DriverError) as caught:
        hand.mark()
    assert not caught.value.retryable


def test_a_fence_that_was_emptied_means_that_nobody_leads(outbox: Outbox) -> None:
    hand = outbox.lead()
    outbox.admin.execute("TRUNCATE outbox_fence")
    with pytest.raises(LeadershipLost):
        hand.mark()


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("08006", True), ("40001", True), ("40P01", True), ("53100", True), ("53300", True), ("57P01", True),
        ("57P02", True), ("57P03", True), ("57014", True), ("55P03", True), ("25006", True), ("58030", True),
        ("25P02", True), ("25P03", True), ("25P04", True), ("XX000", True), ("XX001", False),
        ("57P04", False), ("28P01", False), ("28000", False), ("3D000", False), ("42P01", False),
        ("42501", False), ("42601", False), ("22021", False), ("23505", False), ("26000", False),
    ],
)  # fmt: skip
def test_which_errors_may_pass_by_themselves(state: str, expected: bool) -> None:
    assert retryable(psycopg.errors.lookup(state)("x")) is expected


def test_an_error_does_not_quote_the_row_that_violates_a_constraint(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox ADD CONSTRAINT unmarked CHECK (leader_id IS NULL)")
    outbox.write(key="jane.doe@example.com")
    with pytest.raises(DriverError, match="unmarked") as caught:
        outbox.lead().mark()
    assert "jane.doe" not in "".join(traceback.format_exception(caught.value))
