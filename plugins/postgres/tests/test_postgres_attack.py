"""Somebody else may create in a schema of the search path; nothing of theirs runs with our rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from outbox_api import (
    OLDEST,
    SCHEMA,
    Action,
    Batch,
    ColumnIs,
    DriverError,
    Intake,
    Level,
    Origin,
    Poison,
    Schema,
    TransactionalLane,
)
from outbox_api.seams.outbox_view import MAX_COUNTED
from psycopg.conninfo import make_conninfo

from .hostile_schema import HostileSchema
from .outbox_hands import BESIDE, Hand, MakeOutbox, Outbox

ORIGIN = Origin(column="cluster_id", own=1, known=(1, 2), arrival="arrived")
SOURCES = [ColumnIs("cluster_id", 1), ColumnIs("cluster_id", 2, 60.0, since="arrived")]
INTAKE = Intake(
    table="events", id="number", topic="shop", key="customer", value="body", partition="part", timestamp="at"
)
EVENTS = """
CREATE TABLE public.events (
    number bigserial PRIMARY KEY, customer text, body text, part int, at timestamptz DEFAULT now())
"""
WRITE = """
INSERT INTO public.outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
                           kafka_header_values, cluster_id)
SELECT now(), 'orders', concat('k', mod(i, 10)), 'v', '{}', '{}', %s FROM generate_series(1, %s) AS i
"""
PATHS = {"public": "public", "evil": "evil,pg_catalog,public"}
"""Where the attacker may create, and the search path: the usual one, and one that hides the catalogue."""


@pytest.fixture(params=PATHS)
def schema(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def box(make_outbox: MakeOutbox, postgres_dsn: str, schema: str) -> Outbox:
    """An outbox, not created yet, whose name has no schema where the path leads to it first."""
    dsn = make_conninfo(postgres_dsn, options=f"-c search_path={PATHS[schema]}")
    table = "outbox" if schema == "public" else "public.outbox"
    made = make_outbox(dsn, table=table, origin=ORIGIN, intake=INTAKE, lock_timeout=0.2)
    made.admin.execute("SET search_path TO pg_catalog, pg_temp")
    made.admin.execute(EVENTS)
    return made


@pytest.fixture
def hostile(box: Outbox, schema: str) -> Iterator[HostileSchema]:
    role = f"mallory_{uuid4().hex[:8]}"
    box.admin.execute(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA IF NOT EXISTS {schema}")
    box.admin.execute(f"GRANT CREATE ON SCHEMA {schema} TO {role}; GRANT USAGE ON SCHEMA {schema} TO PUBLIC")
    yield HostileSchema(box.admin, schema, role)
    box.admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@pytest.fixture
def attacked(box: Outbox, hostile: HostileSchema) -> Iterator[Outbox]:
    """The outbox, created beside what is hostile; asserts at the end that nothing of that ran."""
    outbox = box.options.table
    assert box.dialect.create() == [f"{outbox}{name.removeprefix('outbox')}" for name in ("outbox", *BESIDE)]
    box.admin.execute(WRITE, (1, 30))
    box.admin.execute(WRITE, (2, 3))
    yield box
    assert not hostile.ran()


def test_what_is_hostile_runs_where_the_path_leads_to_it(attacked: Outbox, hostile: HostileSchema) -> None:
    with attacked.session(autocommit=True) as other, pytest.raises(psycopg.Error, match="attacked"):
        other.execute("SELECT left('x'::varchar, 1)")
    assert hostile.ran()
    attacked.admin.execute(f"SELECT setval('{hostile.sequence}', 1, false)")


def test_marks_and_all_that_belongs_to_them(attacked: Outbox) -> None:
    attacked.admin.execute("INSERT INTO public.events (customer, body) VALUES ('ann', 'new')")
    hand = attacked.lead(eligible=SOURCES)
    attacked.take_in(hand)
    table = hand.table
    assert len(table.identity()) > 0
    assert table.takeovers() == []
    marked = hand.mark(10)
    assert marked
    marked += hand.mark(10, max_bytes=100_000, excluded=["k1"])
    hand.mark(10, source=1)
    assert hand.purge(marked[0].id) == 1
    assert hand.reset(marked[1].id) == 1
    assert table.rows(Batch(((0, 2**62),), "2999-01-01"))
    head = marked[2].id
    assert hand.park([head], head) == 1
    assert table.parked().keys == 1
    table.heartbeat(hand.fence, {"marked": 1})
    assert table.lane_statuses()
    assert [origin.cluster for origin in table.origins()] == [1, 2]
    assert table.begin_takeover(2, "lost")
    assert [takeover.cluster for takeover in table.takeovers()] == [2]
    assert table.end_takeover(2)
    assert table.now().tzinfo
    assert table.backlog().records > 0
    attacked.admin.execute(WRITE, (1, MAX_COUNTED + 1))
    assert table.backlog().records > 0


def test_a_mark_that_meets_locked_rows_and_a_bump_that_meets_a_locked_fence(attacked: Outbox) -> None:
    hand = attacked.lead(eligible=SOURCES)
    with attacked.session() as other:
        other.execute("SET search_path TO pg_catalog")
        (first,) = other.execute("SELECT min(id) FROM public.outbox").fetchone() or (0,)
        other.execute("SELECT FROM public.outbox WHERE id = %s FOR UPDATE", (first,))
        assert first not in hand.ids()
        hand.table._marks._locked._look_due = 0.0
        hand.mark()
        other.rollback()
        other.execute("SELECT FROM public.outbox_fence FOR UPDATE")
        with pytest.raises(DriverError, match="lock timeout"):
            hand.table.bump(1, "next")


def test_advances_and_all_that_belongs_to_them(attacked: Outbox) -> None:
    (lane,) = attacked.lead_batches(eligible=SOURCES)
    batch, ids = lane.batch(5)
    assert len(ids) == 5
    following, _ = lane.batch(5, [batch], max_bytes=100_000)
    lane.table._starts.settled._listing_due = 0.0  # type: ignore[union-attr]
    lane.batch(5, [], [following], source=1)
    with attacked.session() as other:
        other.execute("SET search_path TO pg_catalog")
        other.execute("SELECT FROM public.outbox WHERE id = %s FOR UPDATE", (following.runs[0][0],))
        assert lane.delete(following) == 4
        assert lane.latest.locked
    assert lane.park(lane.ids(1)[0]) == 1
    noted = TransactionalLane(1, "sender", "place")
    lane.table.set_transactional(lane.fence, noted)
    assert lane.table.transactional_lanes() == {0: noted}


def test_an_operators_verbs(attacked: Outbox) -> None:
    hand = attacked.lead(eligible=SOURCES)
    marked = hand.mark(10)
    heads = [record.id for record in marked[:3]]
    for head in heads:
        hand.table.park(hand.fence, hand.leader, [Poison(head, "bad", 1)], [head])
    with closing(attacked.dialect.journal()) as journal:
        entry = journal.begin(Action("alice", "cli", "retry"))
        journal.end(entry, "done")
        assert [(each.id, each.outcome) for each in journal.entries()] == [(entry, "done")]
    letters = attacked.dead_letters()
    assert [letter.record.id for letter in letters.find()] == heads
    assert letters.find([marked[0].key])
    assert letters.waiting(marked[0].key) > 0
    assert letters.retry(heads[:1]) == heads[:1]
    assert letters.skip(heads[1:2]) == heads[1:2]
    assert letters.redrive(heads[1:2]) == heads[1:2]
    _park_an_id_that_was_given_out_anew(attacked, hand, heads[2])


def _park_an_id_that_was_given_out_anew(attacked: Outbox, hand: Hand, head: int) -> None:
    attacked.admin.execute("UPDATE public.outbox_dead_letters SET status = 'skipped' WHERE id = %s", (head,))
    attacked.admin.execute("UPDATE public.outbox SET leader_id = %s WHERE id = %s", (hand.leader, head))
    assert hand.park([head], head) == 1


def test_the_lease_and_the_members(attacked: Outbox) -> None:
    with closing(attacked.dialect.lease()) as lease, closing(attacked.dialect.lease()) as standby:
        assert lease.take("leader", 60) is not None
        assert lease.take("leader", 60) is not None
        assert standby.take("standby", 60) is None
        lease.release("leader")
        standby.wait(60)
        assert standby.take("standby", 60) is not None
    with closing(attacked.dialect.members()) as members:
        assert members.note("group", "one", 1, 60) == {"one": 1}
        members.leave("one")
        assert members.note("group", "two", 1, 60) == {"two": 1}


def test_init_completes_tables(attacked: Outbox) -> None:
    attacked.admin.execute("ALTER TABLE public.outbox DROP COLUMN cluster_id, DROP COLUMN arrived")
    attacked.admin.execute("DELETE FROM public.outbox_fence; DELETE FROM public.outbox_fence_notes")
    attacked.admin.execute("DROP TABLE public.outbox_dead_letters, public.outbox_journal")
    created = [f"{attacked.options.table}{suffix}" for suffix in ("_dead_letters", "_journal")]
    assert attacked.dialect.create() == created
    assert attacked.dialect.schema() == Schema(SCHEMA, OLDEST)
    assert attacked.lead(eligible=SOURCES).mark(5)
    with closing(attacked.dialect.watch()) as view:
        assert [each.cluster for each in view.origins()] == [1]
        assert (view.backlog().records, view.parked().keys, len(view.lane_statuses())) == (33, 0, 1)


def test_the_check_and_the_search_for_outboxes(attacked: Outbox, schema: str) -> None:
    found = attacked.dialect.check()
    assert [finding for finding in found if finding.level == Level.ERROR] == []
    creators = [finding.cure for finding in found if finding.subject == "schemas"]
    assert creators[0].startswith("REVOKE CREATE ON SCHEMA public FROM") is (schema == "public")
    assert attacked.dialect.find_outboxes("public.*") == ["public.outbox"]
    assert attacked.dialect.find_outboxes("*") == (["outbox"] if schema == "public" else [])
