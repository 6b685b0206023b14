"""Tables of earlier and of later versions: what is refused, what a migration does, who goes on meanwhile."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from outbox_postgres import migration
from outbox_sdk import (
    OLDEST,
    SCHEMA,
    AccessDenied,
    DriverError,
    LeadershipLost,
    Level,
    Schema,
    TransactionalLane,
)
from outbox_sdk.portable.columns import SCHEMA_LANE

from .earlier_version import COMPLETE, NAME, VERSIONS, FirstVersion, columns_of_fence, make
from .outbox_hands import MakeOutbox, Outbox, ask
from .ways import WAYS

NOTE = (
    f"SELECT token, attempt, holder FROM outbox_fence WHERE name = 'schema:{NAME}' AND lane = {SCHEMA_LANE}"
)
NOTED = f"UPDATE outbox_fence SET token = %s, attempt = %s WHERE name = 'schema:{NAME}'"
CONTENT = """
SELECT (SELECT array_agg((id, kafka_key, kafka_value, leader_id)::text ORDER BY id) FROM outbox),
       (SELECT array_agg((lane, lanes, token, holder)::text ORDER BY lane) FROM outbox_fence
        WHERE name = 'public.outbox')
"""


@pytest.fixture
def first(make_outbox: MakeOutbox) -> Outbox:
    box = make_outbox()
    make(box, "first")
    return box


@pytest.mark.parametrize("version", VERSIONS)
def test_every_earlier_version_is_migrated_and_harvested(make_outbox: MakeOutbox, version: str) -> None:
    box = make_outbox()
    make(box, version)
    before, columns = box.admin.execute(CONTENT).fetchone(), columns_of_fence(box)
    due = box.dialect.migrations()
    assert due
    assert box.dialect.schema() is None
    (found,) = [f for f in box.dialect.check() if f.subject == "version of the tables"]
    assert (found.level, found.cure) == (Level.WARNING, "run 'outbox migrate'")
    assert columns_of_fence(box) == columns
    assert list(box.dialect.migrate()) == list(due)
    assert box.dialect.migrate() == box.dialect.migrations() == []
    assert box.dialect.schema() == Schema(SCHEMA, OLDEST)
    assert box.admin.execute(CONTENT).fetchone() == before
    assert [f for f in box.dialect.check() if f.level == Level.ERROR] == []
    marked = box.lead(lanes=1).mark()
    assert len(marked) == (30 if version == "first" else 27)  # of the parked key nothing
    for way in WAYS.values():
        way(box.dialect).close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", [each for each in VERSIONS if each not in COMPLETE])
def test_tables_that_lack_columns_are_refused_with_the_cure(
    make_outbox: MakeOutbox, version: str, way: str
) -> None:
    box = make_outbox()
    make(box, version)
    with pytest.raises(DriverError, match=r"earlier version and lacks .*: run 'outbox migrate'") as caught:
        WAYS[way](box.dialect)
    assert not caught.value.retryable
    assert "outbox init" not in str(caught.value)


def test_create_leaves_tables_of_an_earlier_version_to_migrate(first: Outbox) -> None:
    columns = columns_of_fence(first)
    assert first.dialect.create() == ["outbox_dead_letters", "outbox_journal"]
    assert columns_of_fence(first) == columns
    assert first.dialect.schema() is None
    assert len(first.dialect.migrate()) == 2
    assert first.dialect.migrations() == []


def test_a_new_outbox_has_its_version(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    assert outbox.admin.execute(NOTE).fetchall() == [(SCHEMA, OLDEST, "outbox init")]
    assert outbox.dialect.migrations() == []
    beside = make_outbox(table="second")  # with the same fence
    assert beside.dialect.create() == ["second"]
    assert beside.dialect.schema() == Schema(SCHEMA, OLDEST)


def test_the_script_of_a_new_outbox_notes_the_version_of_the_table_that_it_creates(
    make_outbox: MakeOutbox,
) -> None:
    box = make_outbox(table='"It\'s"')
    for statement in box.dialect.ddl():
        box.admin.execute(statement.encode())
    assert box.dialect.schema() == Schema(SCHEMA, OLDEST)
    assert box.dialect.create() == box.dialect.migrations() == []


@pytest.mark.parametrize("way", WAYS)
def test_tables_of_a_later_version_are_refused_by_all_that_connects(outbox: Outbox, way: str) -> None:
    outbox.admin.execute(NOTED, (100, 99))
    sentence = f"version 100 and need an outbox that knows version 99; this one knows version {SCHEMA}"
    with pytest.raises(DriverError, match=sentence) as caught:
        WAYS[way](outbox.dialect)
    assert not caught.value.retryable


def test_nothing_changes_tables_of_a_later_version(outbox: Outbox) -> None:
    outbox.admin.execute(NOTED, (100, 99))
    outbox.admin.execute("DROP TABLE outbox_dead_letters")
    for change in (outbox.dialect.create, outbox.dialect.migrations, outbox.dialect.migrate):
        with pytest.raises(DriverError, match="upgrade outbox"):
            change()
    assert outbox.dialect.schema() == Schema(100, 99)
    (found,) = [f for f in outbox.dialect.check() if f.subject == "version of the tables"]
    assert (found.level, found.cure) == (Level.ERROR, "upgrade outbox")
    assert ask(outbox.admin, "SELECT to_regclass('outbox_dead_letters')") is None


def test_later_tables_that_this_version_can_work_with_are_harvested_and_stay_as_they_are(
    outbox: Outbox,
) -> None:
    outbox.admin.execute(NOTED, (SCHEMA + 1, SCHEMA))
    outbox.admin.execute("ALTER TABLE outbox_fence ADD COLUMN of_the_future INTEGER")
    assert outbox.dialect.migrate() == []
    outbox.fill(3)
    assert len(outbox.lead().mark()) == 3
    assert outbox.dialect.schema() == Schema(SCHEMA + 1, SCHEMA)


def test_a_leader_of_the_first_version_goes_on_while_tables_are_migrated_and_after_a_downgrade(
    first: Outbox,
) -> None:
    old = FirstVersion(first.session(autocommit=True), str(uuid4()))
    token = old.lead()
    ids = old.mark()
    assert len(ids) == 30
    assert first.dialect.migrate()
    first.fill(3)
    later = old.mark()
    assert old.purge(ids + later) == 33
    # The new version takes over, and its predecessor is fenced.
    first.fill(5)
    hand = first.lead()
    assert hand.fence.token > token
    assert old.mark() == []
    marked = hand.mark()
    assert len(marked) == 5
    hand.table.set_transactional(hand.fence, TransactionalLane(1, "sender", "place"))
    identity = hand.table.identity()
    # And back: the old version takes over what the new one had marked.
    assert old.lead() == hand.fence.token + 1
    with pytest.raises(LeadershipLost):
        hand.mark()
    taken = old.mark()
    assert taken == [record.id for record in marked]
    assert old.purge(taken) == 5
    assert first.dialect.schema() == Schema(SCHEMA, OLDEST)
    assert first.dialect.migrations() == []
    # And forward once more.
    last = first.lead()
    assert last.fence.token > hand.fence.token + 1
    assert last.table.identity() == identity
    assert last.table.transactional_lanes() == {0: TransactionalLane(1, "sender", "place")}


@pytest.mark.parametrize("version", ["first", "transactions", "leases"])
def test_who_may_not_migrate_is_told_what_to_run(
    make_outbox: MakeOutbox, user: tuple[str, str], version: str
) -> None:
    box = make_outbox()
    box.admin.execute("DROP TABLE outbox, outbox_fence, outbox_dead_letters; DROP SEQUENCE outbox_lease")
    make(box, version)
    name, dsn = user
    box.admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
    box.admin.execute("REVOKE CREATE ON SCHEMA public FROM public")
    reader = make_outbox(dsn)
    due = reader.dialect.migrations()
    assert due
    with pytest.raises(AccessDenied, match="let somebody who may run: ") as caught:
        reader.dialect.migrate()
    script = re.split("may run: ", str(caught.value))[1]
    assert script == "; ".join(due)
    box.admin.execute(script.encode())
    assert box.dialect.migrations() == []


def test_a_fence_that_is_in_use_is_migrated_by_the_next_try(
    first: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "UPGRADE_PATIENCE", "50ms")
    busy = first.session()
    busy.execute("SELECT FROM outbox_fence")
    with pytest.raises(DriverError, match="another transaction holds the lock") as caught:
        first.dialect.migrate()
    assert caught.value.retryable
    assert first.dialect.schema() is None
    busy.rollback()
    assert first.dialect.migrate()
    assert len(first.lead().mark()) == 30


def test_several_processes_migrate_at_the_same_moment(first: Outbox) -> None:
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: first.dialect.migrate(), range(6)))
    assert len([statement for one in done for statement in one]) == 5
    assert first.dialect.migrations() == []
    assert len(first.lead().mark()) == 30


def test_a_lost_index_of_the_dead_letters_is_made_again(outbox: Outbox) -> None:
    outbox.admin.execute("DROP INDEX outbox_dead_letters_parked")
    assert len(outbox.dialect.migrate()) == 1
    assert ask(outbox.admin, "SELECT to_regclass('outbox_dead_letters_parked')") is not None
