"""Partitions of kept records: rights, locks, and days that cannot have one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from outbox_api import AccessDenied, ConfigError, DriverError, Finding, Level
from outbox_api.portable.keeping import Keep
from outbox_api.seams.kept import Tended
from outbox_postgres.options import PostgresOptions
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox, ask
from .test_postgres_days import PATIENT

KEEP = Keep(for_=10 * 86_400)
DAY = timedelta(days=1)
TODAY = datetime.now(UTC).date()
OLD = TODAY - 30 * DAY


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may have begun on the day before."""
    day = datetime.now(UTC).date()
    monkeypatch.setitem(globals(), "TODAY", day)
    monkeypatch.setitem(globals(), "OLD", day - 30 * DAY)


@pytest.fixture
def kept(make_outbox: MakeOutbox) -> Outbox:
    box = make_outbox(keep=KEEP)
    box.dialect.create()
    return box


def partition(day: date) -> str:
    return f"outbox_kept_{day:%Y%m%d}"


def partitions(box: Outbox, schema: str = "public") -> set[str]:
    rows = box.admin.execute(
        "SELECT relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE relispartition AND relkind = 'r' AND nspname = %s",
        (schema,),
    )
    return {row[0] for row in rows} - {"outbox_kept_default"}


def add(box: Outbox, day: date, rows: int = 0, table: str = "outbox_kept") -> None:
    """Makes a partition as a leader of that day would have, with records."""
    box.admin.execute(
        f"CREATE TABLE {table}_{day:%Y%m%d} PARTITION OF {table}"
        f" FOR VALUES FROM ('{day} 00:00+00') TO ('{day + DAY} 00:00+00')".encode()
    )
    keep(box, day, rows, table)


def keep(box: Outbox, day: date, rows: int, table: str = "outbox_kept") -> None:
    """Writes records of the key 'k' that look as though they had been delivered at noon."""
    hashed = "(hashtext('k') & 2147483647) % 2147483647"
    box.admin.execute(
        f"INSERT INTO {table} (delivered_at, token, key_hash, lacks, id, kafka_topic, kafka_key)"
        f" SELECT '{day} 12:00+00', 1, {hashed}, 0, i, 'orders', 'k'"
        f" FROM generate_series(1, {rows}) AS i".encode()
    )


def findings(box: Outbox) -> list[Finding]:
    return [each for each in box.dialect.check() if each.subject == "table of kept records"]


def test_a_day_that_has_expired_is_dropped_as_a_whole(kept: Outbox) -> None:
    add(kept, OLD, 20_000)
    keep(kept, OLD - DAY, 3)
    assert kept.connect().tend_kept(1000) == Tended(3)
    assert partitions(kept) == {partition(TODAY + number * DAY) for number in range(8)}
    assert ask(kept.admin, "SELECT count(*) FROM outbox_kept") == 0


def test_many_days_go_in_several_calls(kept: Outbox) -> None:
    for number in range(9):
        add(kept, OLD + number * DAY, 1)
    table = kept.connect()
    assert [table.tend_kept(1000).more for _ in range(4)] == [True, True, False, False]
    assert len(partitions(kept)) == 8


def test_who_uses_the_table_delays_a_drop_and_a_drop_delays_nobody_for_long(
    kept: Outbox, make_outbox: MakeOutbox, pool: ThreadPoolExecutor
) -> None:
    add(kept, OLD, 10)
    keep(kept, OLD - DAY, 2)
    reader = kept.session()
    reader.execute("SELECT count(*) FROM outbox_kept")
    kept.fill(10)
    patient = make_outbox(keep=KEEP, **PATIENT)
    hand = patient.lead()
    ids = [each.id for each in hand.mark()]
    table = patient.connect()
    tended = pool.submit(table.tend_kept, 5)
    purged = pool.submit(hand.purge, *ids)
    assert purged.result(60) == 10
    assert tended.result(60)[:2] == (5, True), "rows are deleted meanwhile"
    assert partition(OLD) in partitions(kept)
    reader.rollback()
    table.tend_kept(1000)
    assert partition(OLD) not in partitions(kept)
    assert ask(kept.admin, "SELECT count(*) FROM outbox_kept") == 10


def test_a_day_that_has_records_elsewhere_gets_no_partition(kept: Outbox) -> None:
    kept.admin.execute(f"DROP TABLE {partition(TODAY)}, {partition(TODAY + DAY)}".encode())
    keep(kept, TODAY, 5)
    assert kept.connect().tend_kept(10) == Tended()
    assert partitions(kept) == {partition(TODAY + number * DAY) for number in range(1, 8)}
    [_, found] = findings(kept)
    assert found.level is Level.OK
    assert f"{TODAY} in no partition of its own" in found.message


def test_records_of_partitions_that_somebody_else_made_are_deleted(kept: Outbox) -> None:
    month, after = OLD.replace(day=1), (OLD.replace(day=1) + 32 * DAY).replace(day=1)
    end = min(after, TODAY - 11 * DAY)
    kept.admin.execute(
        f"CREATE TABLE archive PARTITION OF outbox_kept FOR VALUES FROM ('{month} 00:00+00')"
        f" TO ('{end} 00:00+00')".encode()
    )
    keep(kept, month, 7)
    assert kept.connect().tend_kept(100) == Tended(7)
    assert "archive" in partitions(kept)


def test_a_table_without_partitions_is_tended_row_by_row(kept: Outbox) -> None:
    kept.admin.execute("CREATE TABLE plain (LIKE outbox_kept); DROP TABLE outbox_kept")
    kept.admin.execute("ALTER TABLE plain RENAME TO outbox_kept")
    kept.admin.execute("ALTER TABLE outbox_kept ALTER position ADD GENERATED ALWAYS AS IDENTITY")
    keep(kept, OLD, 3)
    keep(kept, TODAY, 2)
    assert kept.connect().tend_kept(100) == Tended(3)


@pytest.fixture
def role(kept: Outbox, make_outbox: MakeOutbox) -> Iterator[Outbox]:
    """The outbox as a harvester sees it that owns nothing."""
    name = f"harvester_{uuid4().hex[:8]}"
    kept.admin.execute(
        f"CREATE ROLE {name} LOGIN PASSWORD 's3cret';"
        f" GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name};"
        f" GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {name};"
        f" REVOKE CREATE ON SCHEMA public FROM public".encode()
    )
    yield make_outbox(make_conninfo(kept.dsn, user=name, password="s3cret"), keep=KEEP)
    kept.admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def test_without_the_rights_rows_are_deleted_and_check_says_what_to_grant(kept: Outbox, role: Outbox) -> None:
    kept.admin.execute(f"DROP TABLE {partition(TODAY + DAY)}".encode())
    add(kept, OLD, 25)
    keep(kept, OLD - DAY, 5)
    table = role.connect()
    calls = [table.tend_kept(20) for _ in range(2)]
    assert [(each.deleted, each.more) for each in calls] == [(20, True), (10, False)]
    assert "may not make and remove partitions" in calls[-1].faults[0]
    assert calls[-1] == table.tend_kept(20)._replace(deleted=10), "in the same words each time"
    assert ask(kept.admin, "SELECT count(*) FROM outbox_kept") == 0
    warned = [each for each in findings(role) if each.level is Level.WARNING]
    assert len(warned) == 2
    assert "no partition for" in warned[1].message
    cure, _, _ = warned[0].cure.partition("; or let its owner")
    for statement in cure.split("; "):
        kept.admin.execute(statement.encode())
    assert table.tend_kept(20) == Tended()
    assert partition(OLD) not in partitions(kept)
    assert partition(TODAY + DAY) in partitions(kept)
    assert [each.level for each in findings(role)] == [Level.OK, Level.OK]


def test_the_statements_of_check_are_all_that_is_due(kept: Outbox, role: Outbox) -> None:
    kept.admin.execute(f"DROP TABLE {partition(TODAY + 5 * DAY)}".encode())
    add(kept, OLD, 5)
    cure = next(each.cure for each in findings(role) if each.level is Level.WARNING)
    _, _, due = cure.partition("due now: ")
    for statement in due.split("; "):
        kept.admin.execute(statement.encode())
    assert partitions(kept) == {partition(TODAY + number * DAY) for number in range(8)}


def test_what_a_role_lacks_to_keep_is_told(kept: Outbox, role: Outbox) -> None:
    user = str(role.options.data_source).split("user=")[1].split()[0]
    kept.admin.execute(f"REVOKE USAGE ON SEQUENCE outbox_kept_position_seq FROM {user}".encode())
    [found] = [each for each in findings(role) if each.level is Level.ERROR]
    assert "nothing can be kept" in found.message
    kept.admin.execute(found.cure.encode())
    assert not [each for each in findings(role) if each.level is Level.ERROR]
    kept.admin.execute(f"REVOKE DELETE ON outbox_kept FROM {user}".encode())
    with pytest.raises(DriverError, match="DELETE"):
        role.connect()


def test_nobody_waits_while_the_table_is_created(make_outbox: MakeOutbox, pool: ThreadPoolExecutor) -> None:
    box, keeping = make_outbox(), make_outbox(keep=KEEP)
    box.dialect.create()
    box.fill(200)
    hand = box.lead()
    writer = box.session()
    box.write(connection=writer)
    assert pool.submit(keeping.dialect.create).result(60) == ["outbox_kept"]
    assert hand.purge(*[each.id for each in hand.mark()]) == 200
    writer.commit()


def test_erasing_is_refused_as_a_whole_without_the_rights(kept: Outbox, role: Outbox) -> None:
    keep(kept, TODAY, 3)
    user = str(role.options.data_source).split("user=")[1].split()[0]
    kept.admin.execute(
        f"REVOKE UPDATE ON outbox_journal FROM {user};"
        f" GRANT UPDATE (outcome, ended) ON outbox_journal TO {user}".encode()
    )
    erasing = role.dialect.erasing()
    with pytest.raises(AccessDenied):
        erasing.live("k")
    kept.admin.execute(f"GRANT UPDATE (subject, reason, outcome) ON outbox_journal TO {user}".encode())
    assert erasing.live("k") == (0, 0)
    assert sum(erasing.erase_kept("k", 10)) == 3
    erasing.close()


@pytest.mark.parametrize(("length", "keeps", "fits"), [(49, KEEP, True), (50, KEEP, False), (63, None, True)])
def test_a_name_must_leave_room_for_the_day(length: int, keeps: Keep | None, fits: bool) -> None:
    options: Callable[[], PostgresOptions] = lambda: PostgresOptions(table="o" * length, keep=keeps)  # noqa: E731
    if fits:
        options()
        return
    with pytest.raises(ConfigError, match="49 bytes"):
        options()


def test_the_longest_name_has_all_its_partitions(make_outbox: MakeOutbox) -> None:
    name = "o" * 49
    box = make_outbox(table=name, keep=KEEP)
    box.dialect.create()
    keep(box, OLD, 2, f"{name}_kept")
    assert box.connect().tend_kept(10) == Tended(2)
    assert len(partitions(box)) == 9, "with the one for the rest"


def test_another_schema(make_outbox: MakeOutbox) -> None:
    box = make_outbox(table='"a.b {c}"."Out box"', keep=KEEP)
    box.admin.execute('CREATE SCHEMA "a.b {c}"')
    box.dialect.create()
    assert box.connect().tend_kept(10) == Tended()
    assert len(partitions(box, "a.b {c}")) == 9
    with pytest.raises(psycopg.errors.UndefinedTable):
        box.admin.execute("SELECT 1 FROM outbox_kept")
