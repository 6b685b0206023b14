"""Kept records of an outbox that was there before, and purges beside a replay."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from outbox_api import DriverError, Level
from outbox_api.portable.keeping import Keep
from outbox_api.seams.kept import Chosen

from .outbox_hands import WAITING, MakeOutbox, Outbox, ask, until

KEEP = Keep(for_=3600)
COLUMNS = "delivered_at, token, key_hash, lacks, id, kafka_topic"
ROW = f"INSERT INTO outbox_kept ({COLUMNS}) VALUES (now(), 1, 1, 0, 1, 't')"
TIME = "'2026-03-01 23:30'"
TYPE = (
    "SELECT data_type FROM information_schema.columns WHERE table_name = %s AND column_name = 'kafka_value'"
)


@pytest.fixture
def kept(make_outbox: MakeOutbox) -> Outbox:
    box = make_outbox(keep=KEEP)
    box.dialect.create()
    return box


@pytest.mark.parametrize("migrates", [False, True])
def test_values_are_kept_in_the_type_that_the_outbox_has(make_outbox: MakeOutbox, migrates: bool) -> None:
    box, keeping = make_outbox(value_type="bytea"), make_outbox(keep=KEEP)
    box.dialect.create()
    keeping.dialect.migrate() if migrates else keeping.dialect.create()
    assert ask(box.admin, TYPE, "outbox_kept") == "bytea"
    box.admin.execute(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value) VALUES ('orders', 'k', '\\xff00')"
    )
    hand = keeping.lead()
    assert hand.purge(*[each.id for each in hand.mark()]) == 1
    with closing(keeping.dialect.kept()) as archive:
        [found] = archive.find(Chosen(), 0, 10)
    assert found.record.value == b"\xff\x00"


def test_check_says_that_values_have_another_type(kept: Outbox) -> None:
    kept.admin.execute(
        "ALTER TABLE outbox ALTER kafka_value TYPE BYTEA USING convert_to(kafka_value, 'UTF8')"
    )
    [found] = [each for each in kept.dialect.check() if each.level is Level.ERROR]
    assert 'outbox_kept" holds texts, and that of the outbox bytes' in found.message
    kept.admin.execute("DROP TABLE outbox_kept")
    kept.dialect.create()
    assert not [each for each in kept.dialect.check() if each.level is Level.ERROR]


def test_what_to_do_about_the_table_is_said(kept: Outbox, make_outbox: MakeOutbox) -> None:
    kept.admin.execute("ALTER TABLE outbox_kept DROP COLUMN lacks")
    with pytest.raises(DriverError, match="lacks the columns lacks: add the columns, or drop the table"):
        kept.connect()
    kept.admin.execute("DROP TABLE outbox_kept")
    with pytest.raises(DriverError, match=r"no table of kept records .*: run 'outbox init'"):
        kept.connect()
    with pytest.raises(
        DriverError, match=r"no table of kept records .*: set the option 'keep', and run 'outbox init'"
    ):
        make_outbox().dialect.kept()


def test_a_replay_waits_for_the_purges_under_way(kept: Outbox, pool: ThreadPoolExecutor) -> None:
    purge = kept.session()
    purge.execute(ROW.encode())
    kept.admin.execute(ROW.encode())
    with closing(kept.dialect.replays()) as replays:
        newest = pool.submit(replays.newest)
        until(lambda: bool(ask(kept.admin, WAITING)))
        assert not newest.done()
        purge.commit()
        last = newest.result(60)
        assert replays.kept.count(Chosen(through=last)).records == 2


def test_days_and_times_are_in_utc_whatever_the_sessions_zone(kept: Outbox) -> None:
    kept.admin.execute(f"ALTER DATABASE {kept.admin.info.dbname} SET timezone = 'Asia/Kathmandu'".encode())
    kept.admin.execute(f"SET timezone = UTC; {ROW.replace('now()', TIME)}".encode())
    with closing(kept.dialect.kept()) as archive:
        [(day, told)] = archive.days()
        [found] = archive.find(Chosen(), 0, 1)
    assert day.isoformat() == "2026-03-01"
    assert {str(each) for each in (told.since, told.until, found.delivered_at)} == {
        "2026-03-01 23:30:00+00:00"
    }


def test_a_name_with_braces(make_outbox: MakeOutbox) -> None:
    box = make_outbox(table='"{x} %s"', keep=KEEP)
    box.dialect.create()
    box.admin.execute("INSERT INTO \"{x} %s\" (kafka_topic, kafka_key) VALUES ('orders', 'k')")
    hand = box.lead()
    assert hand.purge(*[each.id for each in hand.mark()]) == 1
    with closing(box.dialect.replays()) as replays:
        assert replays.kept.count(Chosen(key="k", through=replays.newest())).records == 1


def test_positions_are_found_by_their_index_whatever_statistics_say(kept: Outbox) -> None:
    for _ in range(3):
        kept.admin.execute(ROW.encode())
    scans = "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname LIKE 'outbox_kept%'"
    used = "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'outbox_kept%position%'"
    before = ask(kept.admin, scans.replace("%", "%%"))
    with closing(kept.dialect.kept()) as archive:
        for position in (1, 2):
            [found] = archive.find(Chosen(through=position), position - 1, 1)
            assert found.position == position
        assert archive.find(Chosen(through=2**63 - 1), 2**63 - 2, 1) == []
    until(lambda: ask(kept.admin, used.replace("%", "%%")) > 0)
    assert ask(kept.admin, scans.replace("%", "%%")) == before
