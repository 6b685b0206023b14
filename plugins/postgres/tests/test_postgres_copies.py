"""Copies of an outbox without the sequence of its ids, as logical replication makes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event

import pytest
from outbox_api import DriverError, LeadershipLost
from outbox_api.portable.keeping import Keep
from outbox_api.seams.kept import Chosen

from .outbox_hands import MakeOutbox, Outbox, ask, until
from .test_postgres_check import troubles

WAITING = """
INSERT INTO {} (id, kafka_topic, kafka_key)
SELECT i, 'orders', 'k' FROM generate_series(%s::int, %s::int) AS i
"""
KEPT = (
    "INSERT INTO outbox_kept (delivered_at, token, key_hash, lacks, id, kafka_topic)"
    " VALUES (now(), 1, 1, 0, 1, 't')"
)


def copy(box: Outbox, first: int = 401, last: int = 700) -> None:
    box.admin.execute(WAITING.format(box.options.outbox).encode(), (first, last))


def cure(box: Outbox) -> None:
    (found,) = (each for each in box.dialect.check() if each.level == "error")
    box.admin.execute(found.cure.encode())


def test_nobody_leads_a_copy_whose_sequence_begins_anew(outbox: Outbox) -> None:
    copy(outbox)
    with pytest.raises(DriverError, match=r"the next id is to be 1, and rows with ids from 401 on .* setval"):
        outbox.lead()
    assert "record ids" in troubles(outbox)
    cure(outbox)
    assert "record ids" not in troubles(outbox)
    assert outbox.write() == 701
    outbox.lead()


def test_records_of_the_application_that_have_overtaken_the_copy_change_nothing(outbox: Outbox) -> None:
    copy(outbox)
    outbox.fill(15)
    with pytest.raises(DriverError, match="the next id is to be 16"):
        outbox.lead()


def test_one_chosen_id_is_no_copy(outbox: Outbox) -> None:
    outbox.fill(2)
    copy(outbox, 10**9, 10**9)
    outbox.lead()
    assert "record ids" not in troubles(outbox)


def test_a_position_that_was_set_without_being_used_counts(outbox: Outbox) -> None:
    copy(outbox)
    outbox.admin.execute("SELECT setval('outbox_id_seq', 701, false)")
    outbox.lead()
    assert outbox.write() == 701


def test_a_serial_and_a_partitioned_outbox_are_compared_too(make_outbox: MakeOutbox) -> None:
    box = make_outbox()
    box.dialect.create()
    columns = "LIKE outbox INCLUDING ALL EXCLUDING IDENTITY EXCLUDING STORAGE"
    box.admin.execute(f"CREATE TABLE parent ({columns}) PARTITION BY RANGE (id)".encode())
    box.admin.execute("CREATE TABLE part PARTITION OF parent FOR VALUES FROM (0) TO (1000)")
    box.admin.execute("CREATE SEQUENCE ids OWNED BY parent.id")
    box.admin.execute("ALTER TABLE parent ALTER COLUMN id SET DEFAULT nextval('ids')")
    other = make_outbox(table="parent")
    copy(other)
    with pytest.raises(DriverError, match="the next id is to be 1,"):
        other.lead()
    cure(other)
    other.lead()


def test_nobody_leads_a_copy_whose_sequence_of_kept_records_begins_anew(make_outbox: MakeOutbox) -> None:
    box = make_outbox(keep=Keep(for_=3600))
    box.dialect.create()
    box.fill(3)
    hand = box.lead()
    hand.purge(*[each.id for each in hand.mark()])
    box.admin.execute("ALTER SEQUENCE outbox_kept_position_seq RESTART")
    with pytest.raises(
        DriverError, match=r"the next position of .* is to be 1, and 3 is there.*; SELECT setval"
    ):
        box.lead()
    cure(box)
    box.fill(1)
    hand = box.lead()
    hand.purge(*[each.id for each in hand.mark()])
    with closing(box.dialect.kept()) as archive:
        assert [each.position for each in archive.find(Chosen(), 0, 10)] == [1, 2, 3, 4]
    assert not [each for each in box.dialect.check() if each.level == "error"]


def test_kept_records_that_a_leader_adds_meanwhile_are_not_behind(make_outbox: MakeOutbox) -> None:
    box = make_outbox(keep=Keep(for_=3600))
    box.dialect.create()
    box.fill(2000)
    hand, ended = box.lead(), Event()

    def deliver() -> None:
        while not ended.is_set() and (found := hand.mark(5)):
            hand.purge(*[each.id for each in found])

    with ThreadPoolExecutor() as pool, closing(box.dialect.connect()) as other:
        delivering = pool.submit(deliver)
        try:
            while not delivering.done():
                with pytest.raises(LeadershipLost):  # it compares, and then finds another token
                    other.bump(1, "other", expected=hand.fence.token + 1)
        finally:
            ended.set()
        delivering.result()


def test_positions_are_compared_by_their_index(make_outbox: MakeOutbox) -> None:
    box = make_outbox(keep=Keep(for_=3600))
    box.dialect.create()
    box.admin.execute(KEPT)
    scans = "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname LIKE 'outbox_kept%%'"
    used = "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'outbox_kept%%position%%'"
    before = ask(box.admin, scans)
    table = box.connect()
    table.bump(1, "test")
    table.close()
    until(lambda: ask(box.admin, used) > 0)
    assert ask(box.admin, scans) == before


@pytest.mark.parametrize(
    "default",
    [
        "CREATE SEQUENCE own START 1000; {} SET DEFAULT nextval('own')",
        "CREATE SEQUENCE own; {} SET DEFAULT nextval('own') + 1000",
        "CREATE SEQUENCE own INCREMENT -1; {} SET DEFAULT nextval('own')",
        "CREATE SEQUENCE own CACHE 20; {} SET DEFAULT nextval('own')",
        "DROP SEQUENCE outbox_kept_position_seq CASCADE; {} ADD GENERATED ALWAYS AS IDENTITY",
    ],
)
def test_other_sequences_of_positions_are_not_behind(make_outbox: MakeOutbox, default: str) -> None:
    box = make_outbox(keep=Keep(for_=3600))
    box.dialect.create()
    box.admin.execute(default.format("ALTER TABLE outbox_kept ALTER position").encode())
    for _ in range(3):
        box.admin.execute(KEPT)
    box.connect().bump(1, "test")
    assert not [each for each in box.dialect.check() if each.level == "error"]
