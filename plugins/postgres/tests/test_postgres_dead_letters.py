"""The operator's verbs: what they change, in which order records follow."""

from __future__ import annotations

import random
from uuid import uuid4

import pytest
from outbox_api import DeadLetterStatus, DriverError, MarkedRecord
from outbox_postgres.rows import PostgresDeadLetters
from psycopg.conninfo import make_conninfo

from .outbox_hands import Hand, MakeOutbox, Outbox


def test_a_retried_head_is_marked_again_as_it_is_by_now_and_the_tail_behind_it(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(6, keys=2)
    outbox.park(hand, "k1")
    assert hand.ids() == [2, 4, 6]
    outbox.admin.execute("UPDATE outbox SET kafka_value = 'repaired' WHERE id = 1")
    assert letters.retry([1, 2, 99]) == [1]
    assert letters.find() == []
    assert [(record.id, record.value) for record in hand.mark()] == [(1, "repaired"), (3, "v3"), (5, "v5")]
    assert letters.retry([1]) == []


def test_a_skipped_head_is_gone_and_kept_as_it_was_last(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(6, keys=2)
    outbox.park(hand, "k1")
    outbox.admin.execute(
        "UPDATE outbox SET kafka_topic = 't', kafka_value = 'later', kafka_header_keys = '{h}', "
        "kafka_header_values = '{1}', leader_id = gen_random_uuid() WHERE id = 1"
    )
    assert letters.skip([1, 99]) == [1]
    assert [record.id for record in hand.mark()] == [2, 3, 4, 5, 6]
    (letter,) = letters.find()
    assert letter.record == MarkedRecord(1, "t", "k1", "later", [("h", "1")])
    assert (letter.status, letter.reason, letter.attempts) == (DeadLetterStatus.SKIPPED, "too large", 5)
    assert letters.skip([1]) == letters.retry([1]) == []


def test_a_head_that_somebody_deleted_is_skipped_as_it_was_copied(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(4, keys=2)
    outbox.park(hand, "k1")
    outbox.admin.execute("DELETE FROM outbox WHERE id = 1")
    assert letters.skip([1]) == [1]
    assert letters.find()[0].record.value == "v1"
    assert hand.ids() == [2, 3, 4]


def test_a_row_that_has_another_key_by_now_is_not_deleted(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(4, keys=2)
    outbox.park(hand, "k1")
    outbox.admin.execute("UPDATE outbox SET kafka_key = 'moved' WHERE id = 1")
    assert hand.ids() == [1, 2, 4]
    assert letters.skip([1]) == [1]
    assert letters.find() == [], "it flows with its new key, and must not be redriven besides"
    assert list(outbox.leaders()) == [1, 2, 3, 4]
    assert hand.ids() == [3]


def test_a_header_without_a_value_is_redriven_as_such(outbox: Outbox) -> None:
    outbox.set_default("array_nulls", "off")
    outbox.admin.execute("SET array_nulls = on")
    number = outbox.write(headers=(["a", "b"], [None, "NULL"]))
    hand, letters = outbox.lead(), outbox.dead_letters()
    outbox.park(hand, "k")
    assert letters.skip([number]) == letters.redrive([number]) == [number]
    [record] = hand.mark()
    assert list(record.headers) == [("a", None), ("b", "NULL")]


def test_redriven_letters_come_behind_everything_in_the_order_of_their_ids(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    keys = [f"k{n}" for n in range(50)]
    outbox.fill(150, keys=50)
    outbox.park(hand, *keys)
    assert letters.redrive(list(range(1, 51))) == [], "a parked letter is not for redriving"
    skipped = list(range(1, 51))
    random.Random(1).shuffle(skipped)
    assert letters.skip(skipped) == sorted(skipped)
    # Neither the heap nor an index hands the letters over in order.
    outbox.admin.execute("UPDATE outbox_dead_letters SET reason = 'moved within the heap' WHERE id % 3 = 0")
    for way in ("indexscan", "bitmapscan"):
        outbox.set_default(f"enable_{way}", "off")
    letters = outbox.dead_letters()
    assert letters.redrive([*reversed(skipped), 999]) == list(range(1, 51))
    assert letters.find() == []
    marked = hand.mark()
    assert [record.id for record in marked] == list(range(51, 201))
    assert [record.value for record in marked[100:]] == [f"v{n}" for n in range(1, 51)]
    assert letters.redrive(skipped) == []


def test_a_faulty_row_comes_back_as_it_was(outbox: Outbox, hand: Hand, letters: PostgresDeadLetters) -> None:
    outbox.admin.execute(
        "ALTER TABLE outbox ALTER COLUMN kafka_key DROP NOT NULL, "
        "ALTER COLUMN kafka_header_keys DROP NOT NULL"
    )
    outbox.write("unequal", headers=(["a", "b"], ["1"]))
    outbox.write(None, headers=([["a", "b"]], [["1", "2"]]))
    outbox.admin.execute("UPDATE outbox SET kafka_header_keys = NULL WHERE id = 1")
    copied = "kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
    look = f"SELECT {copied} FROM outbox ORDER BY id"
    before = outbox.admin.execute(look).fetchall()
    outbox.park(hand, "unequal", "")
    assert letters.skip([1, 2]) == [1, 2]
    assert outbox.admin.execute(look).fetchall() == []
    assert letters.redrive([1, 2]) == [1, 2]
    assert outbox.admin.execute(look).fetchall() == before


def test_the_verbs_act_on_all_letters_or_on_none(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(4, keys=2)
    outbox.park(hand, "k0", "k1")
    outbox.admin.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF OLD.id = 2 THEN RAISE 'not this one'; END IF; RETURN coalesce(NEW, OLD); END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON outbox_dead_letters "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    for verb in (letters.retry, letters.skip):
        with pytest.raises(DriverError, match="not this one"):
            verb([1, 2])
    assert [letter.status for letter in letters.find()] == [DeadLetterStatus.PARKED, DeadLetterStatus.PARKED]
    assert list(outbox.leaders()) == [1, 2, 3, 4]
    assert hand.mark() == []
    assert letters.retry([1]) == [1], "the connection goes on"


def test_letters_outlive_the_fence_and_need_no_leader(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(4, keys=2)
    outbox.park(hand, "k0", "k1")
    outbox.admin.execute("TRUNCATE outbox_fence")
    assert letters.retry([1]) == [1]
    assert letters.skip([2]) == [2]
    assert outbox.lead().ids() == [1, 3, 4]


def test_redriving_needs_the_right_to_insert(
    outbox: Outbox, make_outbox: MakeOutbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(1, keys=1)
    outbox.park(hand, "k0")
    letters.skip([1])
    name = f"reader_{uuid4().hex[:8]}"
    outbox.admin.execute(
        f"CREATE ROLE {name} LOGIN PASSWORD 's3cret'; GRANT SELECT, UPDATE, DELETE ON outbox TO {name};"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_fence, outbox_fence_notes, outbox_dead_letters"
        f" TO {name}"
    )
    try:
        theirs = make_outbox(make_conninfo(outbox.dsn, user=name, password="s3cret")).dead_letters()
        with pytest.raises(DriverError, match="grant the permission") as caught:
            theirs.redrive([1])
        assert not caught.value.retryable
        assert len(theirs.find()) == 1
    finally:
        outbox.admin.execute(f"DROP OWNED BY {name}")
        outbox.admin.execute(f"DROP ROLE {name}")
