"""Parking: what is copied, what stays, what flows on, and at what cost."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from outbox_sdk import ColumnIs, DriverError, Fate, LeadershipLost

from .outbox_hands import Hand, MakeOutbox, Outbox, ask, until, waits


def rows(outbox: Outbox) -> list[tuple[Any, ...]]:
    return outbox.admin.execute(f"SELECT * FROM {outbox.options.outbox} ORDER BY id").fetchall()


def test_parking_copies_the_head_and_moves_nothing(outbox: Outbox) -> None:
    ids = [outbox.write("a", f"v{n}", (["h"], [str(n)])) for n in range(3)]
    before = rows(outbox)
    hand = outbox.lead()
    hand.mark()
    assert hand.park(ids, ids[0], reason="message too large") == 1
    assert rows(outbox) == before
    (letter,) = outbox.letters().letters()
    assert letter.record == (ids[0], "orders", "a", "v0", [("h", "0")], None, None, None)
    assert (letter.reason, letter.attempts, letter.fate) == ("message too large", 5, Fate.PARKED)
    assert 0 <= letter.age < 60
    assert letter.since.tzinfo is not None


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_parked_key_stays_behind_and_every_other_key_flows(outbox: Outbox, lanes: int) -> None:
    table = outbox.connect()
    token = table.bump(lanes, "test")
    hands = [Hand(outbox.connect(), table.enter(lane, lanes, token)) for lane in range(lanes)]
    outbox.fill(60, keys=6)
    for hand in hands:
        marked = hand.mark()
        ours = [record.id for record in marked if record.key == "k3"]
        if ours:
            hand.park(ours, ours[0])
        hand.purge(*[record.id for record in marked if record.key != "k3"])
    outbox.fill(12, keys=6)
    again = [record for hand in hands for record in hand.mark()]
    assert sorted(record.id for record in again) == [61, 62, 64, 65, 66, 67, 68, 70, 71, 72]
    assert "k3" not in {record.key for record in again}
    assert [number for number, leader in outbox.leaders().items() if leader is None] == [
        *range(3, 61, 6), 63, 69
    ]  # fmt: skip


def test_the_heads_of_several_keys_are_parked_at_once(outbox: Outbox) -> None:
    outbox.fill(12, keys=4)
    hand = outbox.lead()
    hand.mark()
    assert hand.park([1, 2, 5, 6, 9, 10], 1, 2) == 2
    hand.reset(3, 4, 7, 8, 11, 12)
    assert [record.id for record in hand.mark()] == [3, 4, 7, 8, 11, 12]


def test_parking_again_after_a_lost_reply_changes_nothing(outbox: Outbox) -> None:
    outbox.fill(3, keys=1)
    hand = outbox.lead()
    hand.mark()
    assert hand.park([1, 2, 3], 1, reason="first") == 1
    before = outbox.letters().letters()[0]
    assert hand.park([1, 2, 3], 1, reason="second") == 0
    after = outbox.letters().letters()[0]
    assert (after.reason, after.since) == (before.reason, before.since)
    assert hand.mark() == []


def test_only_rows_that_carry_the_leader_id_are_parked_or_reset(outbox: Outbox) -> None:
    outbox.fill(4, keys=1)
    hand = outbox.lead()
    hand.mark()
    other = uuid4()
    outbox.admin.execute("UPDATE outbox SET leader_id = %s WHERE id = 1", (other,))
    assert hand.park([1, 2, 3], 1) == 0
    assert outbox.letters().letters() == []
    assert outbox.leaders() == {1: other, 2: None, 3: None, 4: hand.leader}


@pytest.mark.usefixtures("eager")
def test_a_tail_whose_head_was_gone_is_marked_again_however_far_marks_are(outbox: Outbox) -> None:
    outbox.fill(30, keys=3)
    hand = outbox.lead()
    hand.mark(20)
    assert hand.mark(1)
    outbox.admin.execute("DELETE FROM outbox WHERE id = 1")
    assert hand.park([1, 4, 7], 1) == 0
    assert [record.id for record in hand.mark(2)] == [4, 7]


def test_a_zombie_parks_nothing(outbox: Outbox) -> None:
    outbox.fill(3, keys=1)
    zombie = outbox.lead()
    zombie.mark()
    before = outbox.leaders()
    outbox.connect().bump(1, "other")
    with pytest.raises(LeadershipLost):
        zombie.park([1, 2, 3], 1)
    assert outbox.leaders() == before
    assert outbox.letters().letters() == []


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
        park.result(10)
    assert set(outbox.leaders().values()) == {zombie.leader}
    assert outbox.letters().letters() == []


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
    assert park.result(10) == 1
    leader = Hand(other, other.enter(0, 1, bump.result(10)))
    assert [record.id for record in leader.mark()] == [2, 4]


def test_a_bump_keeps_what_was_released(outbox: Outbox) -> None:
    hand = outbox.lead()
    outbox.fill(1, keys=1)
    outbox.letters().retry([outbox.park(hand, "k0")["k0"]])
    hand.table.bump(2, "again")
    assert outbox.admin.execute("SELECT releases FROM outbox_fence ORDER BY lane").fetchall() == [(1,), (0,)]


def test_outboxes_of_one_schema_share_the_letters_and_not_the_keys(
    make_outbox: MakeOutbox, outbox: Outbox
) -> None:
    other = make_outbox(table="second")
    other.dialect.create()
    for box in (outbox, other):
        box.fill(2, keys=1)
    hand = outbox.lead()
    outbox.park(hand, "k0")
    assert len(other.lead().mark()) == 2
    assert other.letters().letters() == []
    assert other.connect().parked().keys == 0


KEYS = ["", "Grüße 世界 🌍", """a'b"c\\d''e$1 %s {x}""", "  ", "NULL", "k" * 1_000_000]


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_any_key_can_be_parked(outbox: Outbox, key: str) -> None:
    for name in (key, f"{key}x", key, "other"):
        outbox.write(name)
    hand = outbox.lead()
    outbox.park(hand, key)
    assert [record.id for record in hand.mark()] == [2, 4]
    assert outbox.letters().waiting(key) == 2


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
    letters = outbox.letters().letters()
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
    assert outbox.letters().letters()[0].reason == "zero \\0, half \\udc80, 世界 'x'"


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
        letters = latin.letters()
        (letter,) = letters.letters()
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
    assert outbox.letters().waiting("a") == 2


def test_how_much_is_parked(outbox: Outbox) -> None:
    table = outbox.connect()
    assert (table.parked().keys, table.parked().oldest) == (0, None)
    outbox.fill(20, keys=10)
    heads = outbox.park(outbox.lead(), "k1", "k2", "k3")
    outbox.admin.execute("UPDATE outbox_dead_letters SET since = since - interval '1 minute' WHERE id = 2")
    parked = table.parked()
    assert parked.keys == 3
    assert 59 < (parked.oldest or 0) < 120
    outbox.letters().skip([heads["k2"]])
    parked = table.parked()
    assert parked.keys == 2
    assert (parked.oldest or 0) < 59


def test_parking_is_durable(outbox: Outbox) -> None:
    outbox.set_default("synchronous_commit", "off")
    outbox.fill(2, keys=1)
    outbox.admin.execute(
        "CREATE TABLE seen (how text);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON outbox_dead_letters "
        # Deferred, so that it runs as the transaction commits.
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()"
    )
    outbox.park(outbox.lead(), "k0")
    letters = outbox.letters()
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
    outbox.letters().retry([2])
    assert {record.key for record in table.mark(fence, leader, 100)} == {"k0"}
