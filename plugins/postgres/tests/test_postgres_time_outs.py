"""Time-outs that a role, a database or a server sets: none of them ends what a session of ours does."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

import psycopg
import pytest
from outbox_postgres.errors import retryable

from .outbox_hands import MakeOutbox, Outbox, ask

TIME_OUTS = (
    "transaction_timeout",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
)
LEFT = """
SELECT name FROM pg_settings
WHERE context = 'user' AND name LIKE '%timeout' AND name NOT LIKE 'wal%' AND source <> 'session'
"""
"""What a session of ours leaves as it was; those of replication do not concern it."""


@pytest.mark.parametrize("name", TIME_OUTS)
def test_a_locked_row_and_a_pause_outlast_a_time_out_of_the_database(
    make_outbox: MakeOutbox, outbox: Outbox, name: str
) -> None:
    known = ask(outbox.admin, "SELECT count(*) FROM pg_settings WHERE name = %s", name)
    if not known:
        pytest.skip(f"this server has no {name}")
    outbox.fill(20, keys=20)
    outbox.session().execute("SELECT FROM outbox WHERE id = 1 FOR UPDATE")
    outbox.set_default(name, "'400ms'")
    box = make_outbox(lock_timeout=1.0)
    hand, letters = box.lead(), box.dead_letters()
    with closing(box.dialect.watch()) as view, closing(box.dialect.lease()) as lease:
        assert lease.take("us", 10.0) is not None
        assert hand.ids() == [*range(2, 21)]
        time.sleep(0.6)
        assert hand.purge(*range(2, 21)) == 19
        assert hand.ids() == []
        assert letters.find() == []
        assert view.known_identity()
        assert lease.take("them", 10.0) is None
    assert box.ids() == [1]


@pytest.mark.parametrize("opens", ["connect", "watch", "dead_letters", "lease", "journal"])
def test_a_session_sets_each_time_out_that_the_server_has(
    outbox: Outbox, stack: ExitStack, opens: str
) -> None:
    opened = stack.enter_context(closing(getattr(outbox.dialect, opens)()))
    connection = getattr(opened, "_connection", None) or opened._session.connection
    assert connection.execute(LEFT).fetchall() == []


def test_a_state_that_nobody_knows_is_tried_again_if_it_is_of_the_session_or_the_server(
    outbox: Outbox,
) -> None:
    for state in ("08XYZ", "25XYZ", "25P04", "40XYZ", "53XYZ", "57XYZ", "58XYZ", "XX000"):
        with pytest.raises(psycopg.Error) as caught:
            outbox.admin.execute(f"DO $$ BEGIN RAISE 'odd' USING ERRCODE = '{state}'; END $$")
        assert caught.value.sqlstate == state
        assert retryable(caught.value), state
