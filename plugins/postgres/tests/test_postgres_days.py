"""An outbox in partitions by day in PostgreSQL: plans, rights, locks, and what each partition is given."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from outbox_api import ConfigError, Finding, Level
from outbox_api.portable.partitions import divided_outbox
from outbox_api.seams.kept import Tended
from outbox_postgres import partitions as of_postgres
from outbox_postgres.options import PostgresOptions
from outbox_postgres.partitions import PostgresPartitions
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox, ask
from .plans import nodes, plan
from .test_postgres_check import troubles

PATIENT = {"lock_timeout": 300.0, "statement_timeout": 300.0}
"""Who waits for locks as long as others of an outbox do, waits for longer than its test."""
DAY = timedelta(days=1)
TODAY = datetime.now(UTC).date()
OLD = TODAY - 3 * DAY


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may have begun on the day before."""
    day = datetime.now(UTC).date()
    monkeypatch.setitem(globals(), "TODAY", day)
    monkeypatch.setitem(globals(), "OLD", day - 3 * DAY)


@pytest.fixture
def daily(make_outbox: MakeOutbox) -> Outbox:
    box = make_outbox(by_day=True)
    box.dialect.create()
    return box


def part(day: date) -> str:
    return f"outbox_{day:%Y%m%d}"


def partitions(box: Outbox) -> set[str]:
    rows = box.admin.execute("SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'")
    return {row[0] for row in rows} - {"outbox_default"}


def add(box: Outbox, day: date, rows: int = 0) -> None:
    """Makes a partition as a leader of that day would have, with rows."""
    bounds = f"FROM ('{day} 00:00+00') TO ('{day + DAY} 00:00+00')"
    box.admin.execute(f"CREATE TABLE {part(day)} PARTITION OF outbox FOR VALUES {bounds}".encode())
    box.admin.execute(
        "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value)"
        " SELECT %s::timestamptz, 'orders', 'k' || i %% 10, 'v' FROM generate_series(1, %s) AS i",
        (f"{day} 12:00+00", rows),
    )


def findings(box: Outbox) -> list[Finding]:
    return [each for each in box.dialect.check() if each.subject == "partitions"]


def test_all_is_well_with_what_init_makes_and_what_leaders_add(daily: Outbox) -> None:
    assert partitions(daily) == {part(TODAY + number * DAY) for number in range(4)}
    daily.admin.execute("ALTER TABLE outbox_default SET (fillfactor = 60)")
    daily.admin.execute(f"DROP TABLE {part(TODAY + 3 * DAY)}".encode())
    assert daily.connect().tend_days() == Tended()
    question = "SELECT 'fillfactor=60' = ANY (reloptions) FROM pg_class WHERE relname = %s"
    assert ask(daily.admin, question, part(TODAY + 3 * DAY))
    assert troubles(daily) == {}


def test_a_mark_sorts_nothing_and_reads_no_more_than_it_takes(daily: Outbox) -> None:
    for number in range(3):
        add(daily, OLD - number * DAY, 300)
    daily.fill(300)
    hand = daily.lead()
    tree = nodes(plan(hand, 100))
    assert not [node for node in tree if "Sort" in node["Node Type"]]
    read = [node for node in tree if "leader_id IS NULL" in node.get("Filter", "")]
    assert sum(node["Actual Rows"] for node in read) <= 110
    assert not [node for node in tree if node["Node Type"] == "Seq Scan" and node["Actual Loops"]]
    ids = [each.id for each in hand.mark(2000)]
    assert ids == sorted(ids)
    assert hand.purge(*ids) == 1200


def test_the_backlog_is_estimated_from_all_partitions(daily: Outbox) -> None:
    add(daily, OLD, 400)
    daily.fill(10)
    daily.admin.execute("UPDATE outbox SET id = id + 1000000 WHERE create_time > now() - interval '1 hour'")
    daily.admin.execute("ANALYZE outbox")
    view = daily.dialect.watch()
    assert 400 <= view._id_range() <= 1000
    view.close()


def test_who_uses_the_outbox_delays_a_drop_and_a_drop_delays_nobody_for_long(
    daily: Outbox, make_outbox: MakeOutbox, pool: ThreadPoolExecutor
) -> None:
    add(daily, OLD)
    patient = make_outbox(by_day=True, **PATIENT)
    reader = daily.session()
    reader.execute("SELECT count(*) FROM outbox")
    daily.fill(10)
    hand = patient.lead()
    ids, table = [each.id for each in hand.mark()], patient.connect()
    tended = pool.submit(table.tend_days)
    written, purged = pool.submit(daily.write), pool.submit(hand.purge, *ids)
    assert purged.result(60) == 10
    assert written.result(60)
    assert tended.result(60) == Tended()
    assert part(OLD) in partitions(daily)
    reader.rollback()
    assert table.tend_days() == Tended()
    assert part(OLD) not in partitions(daily)


def test_a_prepared_transaction_keeps_its_day(daily: Outbox, make_outbox: MakeOutbox) -> None:
    if not int(ask(daily.admin, "SHOW max_prepared_transactions")):
        add(daily, OLD, 1)  # without any, a row does
    else:
        add(daily, OLD)
        writer = daily.session(autocommit=True)
        writer.execute("BEGIN")
        insert = "INSERT INTO outbox (create_time, kafka_topic, kafka_key) VALUES (%s, 't', 'k')"
        writer.execute(insert, (f"{OLD} 12:00+00",))
        writer.execute("PREPARE TRANSACTION 'late'")
    assert daily.connect().tend_days() == Tended()
    assert part(OLD) in partitions(daily)
    if ask(daily.admin, "SELECT count(*) FROM pg_prepared_xacts"):
        daily.admin.execute("COMMIT PREPARED 'late'")
    assert ask(daily.admin, "SELECT count(*) FROM outbox") == 1


def test_the_statement_is_refused_where_it_would_not_see_what_was_committed(daily: Outbox) -> None:
    add(daily, OLD)
    [statement] = PostgresPartitions().drop(divided_outbox(daily.options.outbox), OLD)
    daily.admin.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.errors.RaiseException, match="READ COMMITTED"):
        daily.admin.execute(statement.encode())
    daily.admin.execute("ROLLBACK")
    daily.admin.execute(statement.encode())
    assert part(OLD) not in partitions(daily)


def test_a_day_that_takes_long_to_look_at_waits(daily: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    add(daily, OLD)
    quick = of_postgres._of_day
    with monkeypatch.context() as patched:
        patched.setattr(of_postgres, "_of_day", lambda of: f"SELECT pg_sleep(1), EXISTS ({quick(of)})")
        assert daily.connect().tend_days() == Tended()
    assert part(OLD) in partitions(daily)
    assert daily.connect().tend_days() == Tended()
    assert part(OLD) not in partitions(daily)


def test_a_day_whose_rows_are_elsewhere_waits_for_them(daily: Outbox) -> None:
    daily.admin.execute(f"DROP TABLE {part(TODAY)}, {part(TODAY + DAY)}".encode())
    daily.fill(5)
    table = daily.connect()
    assert table.tend_days() == Tended()
    assert partitions(daily) == {part(TODAY + number * DAY) for number in range(1, 4)}
    [found] = findings(daily)
    assert found.level is Level.OK
    assert f"{TODAY} in no partition of its own" in found.message
    hand = daily.lead()
    assert hand.purge(*[each.id for each in hand.mark()]) == 5
    assert table.tend_days() == Tended()
    assert part(TODAY) in partitions(daily)


def test_what_is_published_can_be_deleted(daily: Outbox) -> None:
    daily.admin.execute("CREATE PUBLICATION out FOR TABLE outbox WITH (publish_via_partition_root = true)")
    daily.admin.execute(f"DROP TABLE {part(TODAY)}".encode())
    assert daily.connect().tend_days() == Tended()
    daily.fill(5)
    assert ask(daily.admin, f"SELECT count(*) FROM {part(TODAY)}") == 5
    hand = daily.lead()
    assert hand.purge(*[each.id for each in hand.mark()]) == 5


def test_triggers_of_the_outbox_run_for_each_partition(daily: Outbox) -> None:
    daily.admin.execute(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_notify('outbox', NEW.id::text); RETURN NEW; END $$"
    )
    daily.admin.execute(
        "CREATE TRIGGER tell AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION tell(); LISTEN outbox"
    )
    daily.admin.execute(f"DROP TABLE {part(TODAY)}".encode())
    assert daily.connect().tend_days() == Tended()
    written = daily.write()
    assert [each.payload for each in daily.admin.notifies(timeout=60, stop_after=1)] == [str(written)]


def test_a_table_that_somebody_divided_otherwise_is_left(daily: Outbox) -> None:
    daily.admin.execute("ALTER TABLE outbox_default RENAME TO others")
    daily.admin.execute(f"DROP TABLE {part(TODAY + DAY)}".encode())
    add(daily, OLD)
    assert daily.connect().tend_days() == Tended()
    assert part(OLD) in partitions(daily)
    assert findings(daily) == []


def test_ids_that_no_sequence_gives_out_may_repeat(daily: Outbox) -> None:
    daily.admin.execute("ALTER TABLE outbox ALTER id DROP DEFAULT")
    assert troubles(daily)["record ids"].startswith("error: no sequence gives them out")


@pytest.fixture
def role(daily: Outbox, make_outbox: MakeOutbox) -> Iterator[Outbox]:
    """The outbox as a harvester sees it that owns nothing."""
    name = f"harvester_{uuid4().hex[:8]}"
    daily.admin.execute(
        f"CREATE ROLE {name} LOGIN PASSWORD 's3cret';"
        " GRANT SELECT, INSERT, UPDATE, DELETE ON"
        f" outbox, outbox_fence, outbox_fence_notes, outbox_dead_letters TO {name};"
        " REVOKE CREATE ON SCHEMA public FROM public".encode()
    )
    yield make_outbox(make_conninfo(daily.dsn, user=name, password="s3cret"))
    daily.admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def test_without_the_rights_nothing_stops_and_check_says_what_to_do(daily: Outbox, role: Outbox) -> None:
    daily.admin.execute(f"DROP TABLE {part(TODAY + DAY)}".encode())
    add(daily, OLD)
    add(daily, OLD - DAY, 2)
    table = role.connect()
    tended = table.tend_days()
    assert "may not make and remove partitions" in tended.faults[0]
    assert not tended.more
    assert table.tend_days() == tended, "in the same words each time"
    hand = role.lead()
    ids = [each.id for each in hand.mark()]
    assert len(ids) == 2
    warned = findings(role)
    assert [each.level for each in warned] == [Level.WARNING] * 2
    _, _, due = warned[0].cure.partition("due now: ")
    daily.fill(1)
    daily.admin.execute(due.encode())
    assert partitions(daily) == {part(OLD - DAY), *(part(TODAY + number * DAY) for number in range(4))}
    assert ask(daily.admin, "SELECT count(*) FROM outbox") == 3
    cure, _, _ = warned[0].cure.partition("; or let its owner")
    for statement in cure.split("; "):
        daily.admin.execute(statement.encode())
    assert hand.purge(*ids) == 2
    assert table.tend_days() == Tended()
    assert part(OLD - DAY) not in partitions(daily)
    assert [each.level for each in findings(role)] == [Level.OK]


def test_a_name_must_leave_room_for_the_day(make_outbox: MakeOutbox) -> None:
    with pytest.raises(ConfigError, match="54 bytes"):
        PostgresOptions(table="o" * 55, by_day=True)
    box = make_outbox(table=f'"{"o" * 52} {{"', by_day=True)
    box.dialect.create()
    assert len(partitions(box)) == 5, "with the one for the rest"
    box.fill(2)
    assert len(box.lead().mark()) == 2


def test_the_ddl_makes_an_outbox_that_leaders_find(make_outbox: MakeOutbox) -> None:
    box = make_outbox(by_day=True)
    for _ in range(2):
        for statement in box.dialect.ddl():
            box.admin.execute(statement.encode())
    assert partitions(box) == set()
    other = make_outbox()
    assert other.dialect.create() == []
    assert partitions(box) == {part(TODAY + number * DAY) for number in range(4)}
    assert troubles(other) == {}
