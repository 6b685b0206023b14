"""Parking: what is copied, what stays, what flows on, and at what cost."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from uuid import UUID, uuid4

import psycopg
import pytest
from outbox_api import ColumnIs, DriverError, LeadershipLost

from .outbox_hands import Hand, MakeOutbox, Outbox, ask, until, waits


@pytest.mark.usefixtures("eager")
def test_a_tail_whose_head_was_gone_is_marked_again_however_far_marks_are(outbox: Outbox) -> None:
    outbox.fill(30, keys=3)
    hand = outbox.lead()
    hand.mark(20)
    assert hand.mark(1)
    outbox.admin.execute("DELETE FROM outbox WHERE id = 1")
    assert hand.park([1, 4, 7], 1) == 0
    assert [record.id for record in hand.mark(2)] == [4, 7]


def test_a_park_blocked_behind_a_bump_parks_nothing(outbox: Outbox, pool: ThreadPoolExecutor) -> None:
    outbox.fill(3, keys=1)
    zombie = outbox.lead()
    zombie.mark()
    blocker = outbox.session()
    # What a bump does, held open.
    blocker.execute("UPDATE outbox_fence SET token = token + 1")
    park: Future[int] = pool.submit(zombie.park, [1, 2, 3], 1)
    until(lambda: waits(outbox, zombie.table))
    blocker.commit()
    with pytest.raises(LeadershipLost):
        park.result(60)
    assert set(outbox.leaders().values()) == {zombie.leader}
    assert outbox.dead_letters().find() == []


def test_a_bump_waits_for_a_park_and_the_new_leader_leaves_the_key_out(
    outbox: Outbox, pool: ThreadPoolExecutor
) -> None:
    outbox.fill(4, keys=2)
    hand = outbox.lead()
    hand.mark()
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = 3 FOR UPDATE")
    park = pool.submit(hand.park, [1, 3], 1)
    until(lambda: waits(outbox, hand.table))
    other = outbox.connect()
    bump = pool.submit(other.bump, 1, "other")
    until(lambda: waits(outbox, other))
    row.rollback()
    assert park.result(60) == 1
    leader = Hand(other, other.enter(0, 1, bump.result(60)))
    assert [record.id for record in leader.mark()] == [2, 4]


def test_a_bump_keeps_what_was_released(outbox: Outbox) -> None:
    hand = outbox.lead()
    outbox.fill(1, keys=1)
    outbox.dead_letters().retry([outbox.park(hand, "k0")["k0"]])
    hand.table.bump(2, "again")
    releases = "SELECT releases FROM outbox_fence ORDER BY lane"
    assert outbox.admin.execute(releases).fetchall() == [(1,), (0,)]


@pytest.mark.parametrize("key", ["", "k" * 1_000_000], ids=["empty", "large"])
def test_any_key_can_be_parked(outbox: Outbox, key: str) -> None:
    for name in (key, f"{key}x", key, "other"):
        outbox.write(name)
    hand = outbox.lead()
    outbox.park(hand, key)
    assert [record.id for record in hand.mark()] == [2, 4]
    assert outbox.dead_letters().waiting(key) == 2


def test_a_faulty_row_is_parked_by_the_key_that_the_lane_knows_it_by(outbox: Outbox) -> None:
    outbox.admin.execute(
        "ALTER TABLE outbox ALTER COLUMN kafka_key DROP NOT NULL, ALTER COLUMN kafka_topic DROP NOT NULL, "
        "ALTER COLUMN kafka_header_keys DROP NOT NULL, ALTER COLUMN kafka_header_values DROP NOT NULL"
    )
    outbox.write(None)
    outbox.write("unequal", headers=(["a", "b"], ["1"]))
    outbox.write("", "behind the null key")
    outbox.admin.execute("INSERT INTO outbox (kafka_key, kafka_header_keys) VALUES ('no topic', NULL)")
    outbox.write("sound")
    hand = outbox.lead()
    outbox.park(hand, "", "unequal", "no topic")
    assert [record.key for record in hand.mark()] == ["sound"]
    letters = outbox.dead_letters().find()
    assert [(letter.record.id, letter.record.key) for letter in letters] == [
        (1, ""), (2, "unequal"), (4, "no topic")
    ]  # fmt: skip
    faults = [letter.record.fault or "" for letter in letters]
    assert "key is null" in faults[0]
    assert "2 header names" in faults[1]
    assert "topic is null" in faults[2]


def test_a_reason_of_any_text_can_be_kept(outbox: Outbox) -> None:
    outbox.fill(1, keys=1)
    hand = outbox.lead()
    hand.mark()
    assert hand.park([1], 1, reason="zero \0, half \udc80, 世界 'x'") == 1
    assert outbox.dead_letters().find()[0].reason == "zero \\0, half \\udc80, 世界 'x'"


def test_a_reason_in_a_database_that_holds_no_unicode(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    name = f"latin_{uuid4().hex[:8]}"
    outbox.admin.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    latin = make_outbox(psycopg.conninfo.make_conninfo(outbox.dsn, dbname=name))
    try:
        latin.dialect.create()
        latin.write("ü", "grün")
        hand = latin.lead()
        hand.mark()
        assert hand.park([1], 1, reason="世界 zu groß") == 1
        letters = latin.dead_letters()
        (letter,) = letters.find()
        assert (letter.record.key, letter.record.value) == ("ü", "grün")
        assert letter.reason == "\\u4e16\\u754c zu gro\\xdf"
        letters.skip([1])
        letters.redrive([1])
        assert ask(latin.admin, "SELECT kafka_value FROM outbox") == "grün"
    finally:
        outbox.admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_collation_of_the_keys_makes_no_difference(outbox: Outbox) -> None:
    # Where two columns' collations differ, the server refuses to compare them unless told by which.
    outbox.admin.execute('ALTER TABLE outbox ALTER COLUMN kafka_key TYPE text COLLATE "POSIX"')
    for key in ("a", "A", "a"):
        outbox.write(key)
    hand = outbox.lead()
    outbox.park(hand, "a")
    assert [record.key for record in hand.mark()] == ["A"]
    assert outbox.dead_letters().waiting("a") == 2


def test_parking_is_durable(outbox: Outbox) -> None:
    outbox.set_default("synchronous_commit", "off")
    outbox.fill(2, keys=1)
    outbox.admin.execute(
        "CREATE TABLE seen (how text);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN "
        "INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON outbox_dead_letters "
        # Deferred, so that it runs as the transaction commits.
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()"
    )
    outbox.park(outbox.lead(), "k0")
    letters = outbox.dead_letters()
    letters.skip([1])
    letters.redrive([1])
    assert outbox.admin.execute("SELECT DISTINCT how FROM seen").fetchall() == [("on",)]


def test_parking_without_the_privilege_is_refused_and_changes_nothing(outbox: Outbox) -> None:
    outbox.fill(1, keys=1)
    hand = outbox.lead()
    hand.mark()
    outbox.admin.execute("ALTER TABLE outbox_dead_letters RENAME TO elsewhere")
    with pytest.raises(DriverError) as caught:
        hand.park([1], 1)
    assert not caught.value.retryable
    assert outbox.leaders() == {1: hand.leader}


def test_where_ids_prove_nothing_marks_leave_parked_keys_out_too(outbox: Outbox) -> None:
    outbox.fill(20, keys=2)
    outbox.park(outbox.lead(), "k0")
    table = outbox.connect(eligible=[ColumnIs("kafka_topic", "orders")])
    fence, leader = table.enter(0, 1, table.bump(1, "test")), UUID(int=1)
    assert {record.key for record in table.mark(fence, leader, 100)} == {"k1"}
    outbox.dead_letters().retry([2])
    assert {record.key for record in table.mark(fence, leader, 100)} == {"k0"}
