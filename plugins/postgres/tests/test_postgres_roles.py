"""What each role may do that the README describes, and what it may not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from outbox_api import (
    AccessDenied,
    Action,
    DeadLetterStatus,
    Intake,
    Level,
    Record,
    Stasher,
    TransactionalLane,
)
from outbox_postgres import PostgresDialect
from outbox_postgres.options import PostgresOptions
from psycopg.conninfo import make_conninfo

from .outbox_hands import BatchHand, Hand, MakeOutbox, Outbox

README = (Path(__file__).parents[1] / "README.md").read_text()
ROLES = ("application", "watcher", "operator", "harvester")
TABLE = "app.outbox"


def grants(suffix: str) -> str:
    """The SQL of the README, for roles of this test alone."""
    section = README.split("## Roles\n")[1].split("\n## ")[0]
    (script,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    return re.sub(r"\boutbox_(" + "|".join(ROLES) + r")\b", rf"\1_{suffix}", script)


class Roles:
    """The roles of an outbox in a schema of its own.

    Args:
        make_outbox: Connects.
        owner: The outbox, as its owner sees it.
    """

    def __init__(self, make_outbox: MakeOutbox, owner: Outbox, suffix: str) -> None:
        self._make_outbox = make_outbox
        self.owner = owner
        self._suffix = suffix

    def name(self, role: str) -> str:
        return f"{role}_{self._suffix}"

    def box(self, role: str, table: str = TABLE, **options: object) -> Outbox:
        dsn = make_conninfo(self.owner.dsn, user=self.name(role), password="s3cret")
        return self._make_outbox(dsn, table=table, **options)


@pytest.fixture
def roles(make_outbox: MakeOutbox) -> Iterator[Roles]:
    owner, suffix = make_outbox(table=TABLE), uuid4().hex[:8]
    made = Roles(make_outbox, owner, suffix)
    owner.admin.execute("CREATE SCHEMA app; REVOKE CREATE ON SCHEMA public FROM public")
    owner.dialect.create()
    for role in ROLES:
        owner.admin.execute(f"CREATE ROLE {made.name(role)} LOGIN PASSWORD 's3cret'".encode())
    owner.admin.execute(grants(suffix).encode())
    owner.fill(20)
    with closing(owner.dialect.journal()) as journal:
        journal.end(journal.begin(Action("owner", "cli", "retry")), "done")
    yield made
    for role in ROLES:
        owner.admin.execute(f"DROP OWNED BY {made.name(role)}; DROP ROLE {made.name(role)}".encode())


def stash(dialect: PostgresDialect) -> None:
    with closing(dialect.stash_connection()) as connection:
        Stasher(TABLE).stash(connection, Record("orders", "k", "v", (("h", "v"),)))
        connection.commit()


def look(dialect: PostgresDialect) -> None:
    with closing(dialect.watch()) as view:
        assert view.backlog().records >= 20
        assert view.name == TABLE
        view.known_identity()
        view.lane_statuses(), view.transactional_lanes(), view.origins(), view.takeovers(), view.now()
        assert view.parked().keys > 0
        assert view.upkeep().visible
    with closing(dialect.dead_letters(read_only=True)) as letters:
        assert letters.find()
        assert letters.waiting("k1") > 0
    assert dialect.schema() is not None
    assert dialect.migrations() == []
    assert {f.subject for f in dialect.check()} >= {"outbox table", "version of the tables", "primary key"}


def read_journal(dialect: PostgresDialect) -> None:
    with closing(dialect.journal(read_only=True)) as journal:
        assert [entry.outcome for entry in journal.entries()] == ["done"]


def operate(dialect: PostgresDialect) -> None:
    with closing(dialect.journal()) as journal:
        journal.end(journal.begin(Action("operator", "cli", "retry")), "done")
    with closing(dialect.dead_letters()) as letters:
        (retried, skipped, *_) = letters.find(status=DeadLetterStatus.PARKED)
        assert letters.retry([retried.record.id]) == [retried.record.id]
        assert letters.skip([skipped.record.id]) == [skipped.record.id]
    with closing(dialect.connect()) as table:
        assert table.bump(1, "operator") > 0
        assert table.begin_takeover(2, "lost")
        assert table.end_takeover(2)


def redrive(dialect: PostgresDialect) -> None:
    with closing(dialect.dead_letters()) as letters:
        ids = [letter.record.id for letter in letters.find(status=DeadLetterStatus.SKIPPED)]
        assert letters.redrive(ids) == ids != []


def harvest(dialect: PostgresDialect) -> None:
    with closing(dialect.connect()) as table:
        assert table.identity()
        hand = Hand(table, table.enter(0, 1, table.bump(1, "leader")))
        marked = hand.ids(6)
        assert hand.purge(marked[0]) == 1
        assert hand.park(marked[1:], marked[1]) == 1
        assert hand.reset(*marked[2:]) == 0  # which the park did
        table.heartbeat(hand.fence, {"purged": 1})
        table.set_transactional(hand.fence, TransactionalLane(1, "sender", "place"))
        batches = BatchHand(table, hand.fence)
        batch, ids = batches.batch(5)
        assert batches.delete(batch) == len(ids) == 5
        table.set_transactional(hand.fence, None)
    with closing(dialect.members()) as members:
        members.note("group", "member", 1, 10)
        members.leave("member")


def hold_lease(dialect: PostgresDialect) -> None:
    with closing(dialect.lease()) as lease:
        assert lease.take("one", 60) is not None
        lease.release("one")


def init(dialect: PostgresDialect) -> None:
    assert dialect.create()


ACTIONS: dict[Callable[[PostgresDialect], None], set[str]] = {
    stash: {"application", "operator"},
    look: {"watcher", "operator", "harvester"},
    read_journal: {"watcher", "operator"},
    operate: {"operator"},
    redrive: {"operator"},
    harvest: {"operator", "harvester"},
    hold_lease: {"harvester"},
}
"""Action → who may do it, by the grants of the README."""


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_the_readme_says_and_nothing_else(roles: Roles, role: str) -> None:
    owners = roles.owner.lead()
    heads = roles.owner.park(owners, "k1", "k2", "k3", "k4")
    with closing(roles.owner.dialect.dead_letters()) as letters:
        letters.skip([heads["k4"]])
    roles.owner.fill(20)
    dialect = roles.box(role).dialect
    for action, who in ACTIONS.items():
        if role in who:
            action(dialect)
        else:
            with pytest.raises((AccessDenied, psycopg.errors.InsufficientPrivilege)):
                action(dialect)
    with pytest.raises((AccessDenied, psycopg.errors.InsufficientPrivilege)):
        roles.box(role, table="app.second").dialect.create()


@pytest.mark.parametrize("column", ["id", "leader_id"])
def test_an_application_chooses_no_id_and_marks_no_row(roles: Roles, column: str) -> None:
    stash(roles.box("application").dialect)
    value = "1000" if column == "id" else "gen_random_uuid()"
    columns = f"{column}, create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values"
    insert = f"INSERT INTO app.outbox ({columns}) VALUES ({value}, now(), 'orders', 'k', '{{}}', '{{}}')"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        roles.box("application").admin.execute(insert)
    found = {f.subject: f for f in roles.owner.dialect.check()}
    assert found["grants"].level == Level.OK
    role = roles.name("application")
    roles.owner.admin.execute(f"GRANT INSERT ON app.outbox TO {role}")
    (wide,) = [f for f in roles.owner.dialect.check() if f.subject == "grants"]
    assert wide.level == Level.WARNING
    assert role in wide.message
    roles.owner.admin.execute(str(wide.cure).encode())
    assert "grants" not in {f.subject for f in roles.owner.dialect.check() if f.level != Level.OK}
    stash(roles.box("application").dialect)


@pytest.mark.parametrize("grant", ["UPDATE", "UPDATE (kafka_key)"])
def test_who_may_change_keys_is_told(roles: Roles, grant: str) -> None:
    roles.owner.admin.execute(f"GRANT {grant} ON app.outbox TO {roles.name('application')}".encode())
    (told,) = [f for f in roles.owner.dialect.check() if f.subject == "grants"]
    assert told.level == Level.WARNING
    assert "may change keys" in told.message


def test_an_operator_rewrites_no_entry_of_the_journal(roles: Roles) -> None:
    admin = roles.box("operator").admin
    for change in (
        "UPDATE app.outbox_journal SET operator = 'bob'",
        "UPDATE app.outbox_journal SET begun = now()",
        "DELETE FROM app.outbox_journal",
        "INSERT INTO app.outbox_journal (name, id, begun) VALUES ('', gen_random_uuid(), '2000-01-01')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            admin.execute(change.encode())


def test_the_owner_may_do_everything(roles: Roles) -> None:
    owners = roles.owner.lead()
    heads = roles.owner.park(owners, "k1", "k2", "k3", "k4")
    with closing(roles.owner.dialect.dead_letters()) as letters:
        letters.skip([heads["k4"]])
    roles.owner.fill(20)
    for action in ACTIONS:
        action(roles.owner.dialect)


def test_the_check_tells_a_watcher_what_a_harvester_needs_and_tells_the_rest_too(roles: Roles) -> None:
    found = roles.box("watcher").dialect.check()
    errors = [f for f in found if f.level == Level.ERROR]
    assert {f.subject for f in errors} == {
        "outbox table",
        "fence table",
        "table of notes",
        "dead-letter table",
    }
    assert all("lacks the privileges" in f.message and (f.cure or "").startswith("GRANT ") for f in errors)
    assert {"primary key", "fill factor", "record ids"} <= {f.subject for f in found}
    assert [f.cure for f in found if f.subject == "account"] == [
        "check with the file of the account that harvests"
    ]
    for role in ("harvester", "operator"):
        assert "account" not in {f.subject for f in roles.box(role).dialect.check()}


def test_a_harvester_with_the_operators_role_serves_verbs_over_http(roles: Roles) -> None:
    heads = roles.owner.park(roles.owner.lead(), "k1", "k2", "k3", "k4")
    with closing(roles.owner.dialect.dead_letters()) as letters:
        letters.skip([heads["k4"]])
    roles.owner.admin.execute(f"GRANT {roles.name('operator')} TO {roles.name('harvester')}".encode())
    harvester = roles.box("harvester").dialect
    for action in (read_journal, operate, redrive):
        action(harvester)


def test_the_check_names_each_right_that_an_intake_lacks(roles: Roles) -> None:
    owner = roles.owner.admin
    owner.execute("CREATE TABLE app.events (id BIGINT PRIMARY KEY, topic TEXT, key TEXT, value TEXT)")
    owner.execute("INSERT INTO app.events VALUES (1, 'orders', 'taken', 'in')")
    intake = Intake(table="app.events", id="id", topic="{topic}", key="key", value="value")
    harvester = roles.box("harvester", intake=intake)

    def found() -> list[str]:
        return [f"{f.message}; {f.cure}" for f in harvester.dialect.check() if f.subject == "intake"]

    for right in (
        "INSERT (create_time, kafka_topic, ",
        "USAGE ON SEQUENCE app.outbox_id_seq",
        "SELECT, UPDATE, DELETE",
    ):
        (grant,) = re.findall(rf'GRANT {re.escape(right)}.* TO "?\w+"?', found()[0])
        owner.execute(grant.encode())
    assert found()[0].startswith("rows of table app.events can be taken in")
    assert "taken" in {record.key for record in harvester.taken().mark()}


def test_the_check_names_the_schema_that_a_user_may_not_use(postgres_dsn: str) -> None:
    user, schema = f"har'v; {uuid4().hex[:8]}", f"Ten'ant %s {uuid4().hex[:8]}"
    table = f'"{schema}"."out ""box"'
    with psycopg.connect(postgres_dsn, autocommit=True) as owner:
        owner.execute(f'CREATE SCHEMA "{schema}"'.encode())
    PostgresDialect(PostgresOptions(data_source=postgres_dsn, table=table)).create()
    with psycopg.connect(postgres_dsn, autocommit=True) as owner:
        owner.execute(f"""CREATE ROLE "{user}" LOGIN PASSWORD 'x'""".encode())
        named = make_conninfo(postgres_dsn, user=user, password="x")
        dialect = PostgresDialect(PostgresOptions(data_source=named, table=table))
        for _ in range(20):  # each time a user pastes what is told
            cures = [str(each.cure) for each in dialect.check() if each.level is Level.ERROR]
            if not cures:
                break
            for cure in cures:
                owner.execute(cure.encode())
    with closing(dialect.connect()):
        assert cures == []
