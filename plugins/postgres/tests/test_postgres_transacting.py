"""The note of who publishes in transactions: on the lane's own row, kept until the lane takes it back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from outbox_api import LeadershipLost, TransactionalLane

from .outbox_hands import MakeOutbox, Outbox, until, waits


def test_a_note_that_waited_for_a_bump_is_not_made(outbox: Outbox, pool: ThreadPoolExecutor) -> None:
    lane = outbox.lead_batches()[0]
    blocker = outbox.session()
    blocker.execute("UPDATE outbox_fence SET token = token + 1")
    note = pool.submit(lane.table.set_transactional, lane.fence, TransactionalLane(1, "sender", "place"))
    until(lambda: waits(outbox, lane.table))
    blocker.commit()
    with pytest.raises(LeadershipLost):
        note.result(60)
    assert lane.table.transactional_lanes() == {}


def test_notes_are_durable_even_where_the_server_is_not(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    outbox.set_default("synchronous_commit", "off")
    (lane,) = make_outbox().lead_batches()
    outbox.admin.execute(
        "CREATE TABLE seen (how text);"
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
        "$$ BEGIN INSERT INTO seen "
        "VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER see AFTER UPDATE ON outbox_fence "
        # Deferred, so that it runs as the transaction commits.
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()"
    )
    lane.table.mark(lane.fence, uuid4(), 1)
    lane.table.set_transactional(lane.fence, TransactionalLane(1, "sender", "place"))
    lane.table.set_transactional(lane.fence, None)
    assert outbox.admin.execute("SELECT how FROM seen").fetchall() == [("on",), ("on",)]
