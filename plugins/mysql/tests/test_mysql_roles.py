"""The users of the README: what each may, and that it may nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pymysql
import pytest
from outbox_api import (
    AccessDenied,
    Action,
    Batch,
    Finding,
    Intake,
    Level,
    Poison,
    Stasher,
    TransactionalLane,
)
from outbox_core.cli import main
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_mysql.connection import open_plain
from outbox_servers.services.external import MySql, connect_mysql
from outbox_testkit.conformance.under_test import Hand, plain, texts

README = Path(__file__).parents[1] / "README.md"
TABLES = (
    "outbox",
    "outbox_fence",
    "outbox_fence_notes",
    "outbox_fence_lease",
    "outbox_fence_members",
    "outbox_dead_letters",
    "outbox_journal",
    "outbox_fence_history",
)
MAY: Mapping[str, Mapping[str, str]] = {
    "outbox_owner": dict.fromkeys(TABLES, "SELECT INSERT UPDATE ALTER"),
    "outbox_harvester": {
        "outbox": "SELECT UPDATE DELETE",
        "outbox_fence": "SELECT INSERT UPDATE",
        "outbox_fence_notes": "SELECT INSERT UPDATE",
        "outbox_fence_lease": "SELECT INSERT UPDATE",
        "outbox_fence_members": "SELECT INSERT UPDATE",
        "outbox_fence_history": "SELECT INSERT UPDATE",
        "outbox_dead_letters": "SELECT INSERT UPDATE DELETE",
    },
    "outbox_watcher": dict.fromkeys((each for each in TABLES if each != "outbox_fence_lease"), "SELECT"),
    "outbox_operator": {
        "outbox": "SELECT INSERT DELETE",
        "outbox_fence": "SELECT INSERT UPDATE",
        "outbox_fence_notes": "SELECT INSERT UPDATE",
        "outbox_dead_letters": "SELECT UPDATE DELETE",
        "outbox_journal": "SELECT INSERT UPDATE",
    },
    "outbox_application": {"outbox": "INSERT"},
}
CHANGED = {
    "outbox": "leader_id",
    "outbox_fence": "heartbeat_at",
    "outbox_fence_notes": "noted_by",
    "outbox_fence_lease": "holder",
    "outbox_fence_members": "leads",
    "outbox_fence_history": "figures",
    "outbox_dead_letters": "kafka_value",
    "outbox_journal": "outcome",
}
NEW = {
    "outbox": "INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', 'k')",
    "outbox_fence": "INSERT INTO outbox_fence SET name = 'x', lane = 0, lanes = 0, token = 0, epoch = 0,"
    " holder = '', since = NOW(), metrics = '', transacting = 0, identity = ''",
    "outbox_fence_notes": "INSERT INTO outbox_fence_notes SET name = 'x'",
    "outbox_fence_lease": "INSERT INTO outbox_fence_lease SET name = 'x', term = 0, length_ms = 0,"
    " renewed_at = NOW()",
    "outbox_fence_members": "INSERT INTO outbox_fence_members SET member = 'x', seen_at = NOW()",
    "outbox_fence_history": "INSERT INTO outbox_fence_history SET name = 'x', slot = 0, epoch_minute = 0,"
    " figures = ''",
    "outbox_dead_letters": "INSERT INTO outbox_dead_letters SET name = 'x', id = 1, status = 'parked',"
    " reason = '', attempts = 1, since = NOW()",
    "outbox_journal": "INSERT INTO outbox_journal SET name = 'x', id = 'y'",
}
ACTION = Action("operator", "cli", "retry", "k0")


class Roles:
    """A database with the tables, and the users of the README.

    Args:
        server: The server.
        stack: Closes connections and drops users.
    """

    def __init__(self, server: MySql, stack: ExitStack) -> None:
        self._stack = stack
        self._suffix = f"_{uuid4().hex[:6]}"
        name = f"shop{self._suffix}"
        self.address = urlsplit(server.create_database(name))
        stack.callback(server.drop_database, name)
        self.admin = stack.enter_context(closing(connect_mysql(self.address.geturl(), autocommit=True)))
        self.owner = self.dialect("outbox_owner")
        self._execute("outbox_owner")
        self.owner.create()
        for user in MAY:
            if user != "outbox_owner":
                self._execute(user)

    def name(self, user: str) -> str:
        """Returns the name with which a user of the README signs in."""
        return f"{user}{self._suffix}"

    def dialect(self, user: str, table: str = "outbox", **options: Any) -> MySqlDialect:
        """Returns the dialect with which a user signs in."""
        name = self.name(user)
        place = f"{name}:{name}@{self.address.hostname}:{self.address.port}"
        source = self.address._replace(netloc=place, query="ssl-mode=DISABLED").geturl()
        return MySqlDialect(MySqlOptions(data_source=source, table=table, **options))

    def application(self, user: str) -> closing[pymysql.Connection[Any]]:
        """Opens a connection of a user."""
        return closing(open_plain(self.dialect(user).options))

    def hand(self, user: str) -> Hand:
        """Lets a user lead one lane."""
        table = self._stack.enter_context(closing(self.dialect(user).connect()))
        return Hand(table, table.enter(0, 1, table.bump(1, user)))

    def _execute(self, user: str) -> None:
        """Executes the statements of the README about a user."""
        block = re.search(r"### Roles\n.*?```sql\n(.*?)```", README.read_text(), re.DOTALL)
        assert block
        statements = re.findall(rf"^((?:CREATE|GRANT) [^;]*\b{user}\b[^;]*);", block[1], re.MULTILINE)
        assert len(statements) >= 2
        name = f"{user}{self._suffix}"
        for statement in statements:
            here = statement.replace("shop.", f"shop{self._suffix}.").replace(user, name)
            self.admin.cursor().execute(here.replace("'…'", f"'{name}'"))
        self._stack.callback(self.admin.cursor().execute, f"DROP USER {name}")


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def roles(request: pytest.FixtureRequest) -> Iterator[Roles]:
    with ExitStack() as stack:
        yield Roles(request.getfixturevalue(f"{request.param}_server"), stack)


@pytest.fixture(autouse=True)
def empty(roles: Roles) -> None:
    for table in TABLES:
        roles.admin.cursor().execute(
            f"UPDATE {table} SET identity = NULL, takeovers = NULL"
            if table == "outbox_fence_notes"
            else f"DELETE FROM {table}"
        )


def stash(roles: Roles, count: int, keys: int = 3) -> list[str]:
    values = [f"v{number}" for number in range(count)]
    records = [plain(f"k{number % keys}", value) for number, value in enumerate(values)]
    with roles.application("outbox_application") as application:
        Stasher(dialect="mysql").stash_many(application, records)
        application.commit()
    return values


def refused(connection: pymysql.Connection[Any], statement: str) -> bool:
    """Executes a statement, and returns whether the user has no right to it."""
    try:
        connection.cursor().execute(statement)
    except pymysql.OperationalError as error:
        if error.args[0] not in {1142, 1143}:  # for a table, or for a column
            raise
        return True
    return False


@pytest.mark.parametrize("user", MAY)
@pytest.mark.parametrize("table", TABLES)
def test_each_user_has_the_rights_of_its_role_and_no_others(roles: Roles, user: str, table: str) -> None:
    changes = {
        "SELECT": f"SELECT * FROM {table}",
        "INSERT": NEW[table],
        "UPDATE": f"UPDATE {table} SET {CHANGED[table]} = NULL",
        "DELETE": f"DELETE FROM {table}",
        "ALTER": f"ALTER TABLE {table} COMMENT = 'x'",
        "DROP": f"DROP TABLE {table}",
    }
    allowed = []
    with roles.application(user) as connection:
        for right, statement in changes.items():
            if not refused(connection, statement):
                allowed.append(right)
            connection.rollback()
    assert " ".join(allowed) == MAY[user].get(table, "")


def test_the_application_stashes_and_nothing_else(roles: Roles) -> None:
    stash(roles, 3)
    dialect = roles.dialect("outbox_application")
    ways = (dialect.connect, dialect.watch, dialect.dead_letters, dialect.journal, dialect.lease)
    for connect in (*ways, dialect.members):
        with pytest.raises(AccessDenied):
            connect()


@pytest.mark.parametrize("column", ["id", "leader_id"])
def test_an_application_chooses_no_id_and_marks_no_row(roles: Roles, column: str) -> None:
    insert = f"INSERT INTO outbox ({column}, kafka_topic, kafka_key) VALUES (1000, 't', 'k')"
    with roles.application("outbox_application") as connection:
        assert refused(connection, insert)


@pytest.mark.parametrize("change", ["operator = 'bob'", "begun = NOW()"])
def test_an_operator_rewrites_no_entry_of_the_journal(roles: Roles, change: str) -> None:
    with roles.application("outbox_operator") as connection:
        assert refused(connection, f"UPDATE outbox_journal SET {change}")


def test_a_harvester_harvests_in_both_modes_and_elects(roles: Roles) -> None:
    values = stash(roles, 30)
    hand = roles.hand("outbox_harvester")
    assert hand.table.identity()
    marked = hand.mark(20, excluded=["k1"])
    hand.purge(marked[0].id)
    hand.reset(*[record.id for record in marked[1:]])
    hand.table.set_transactional(hand.fence, TransactionalLane(1, "sender", "place"))
    hand.table.heartbeat(hand.fence, {"rate": 1})
    batch, selected = hand.batch(10)
    assert selected == values[1:11]
    assert len(hand.advance(5, [batch])) == 5
    assert hand.advance(0, [Batch.of([record.id for record in hand.advance(1)])]) == []
    head = hand.advance(1)[0]
    assert hand.table.park(hand.fence, None, [Poison(head.id, "too large", 1)]).rows == 1
    with roles.application("outbox_harvester") as connection:
        connection.cursor().execute("SELECT id FROM outbox WHERE id IN (1, 2) FOR UPDATE SKIP LOCKED")
    with closing(roles.dialect("outbox_harvester").lease()) as lease:
        assert lease.take("one", 60) == 0
        lease.release("one")
    with closing(roles.dialect("outbox_harvester").members()) as members:
        assert members.note("group", "one", 1, 60) == {"one": 1}
        members.leave("one")
    found = roles.dialect("outbox_harvester").check()
    assert [each for each in found if each.level is Level.ERROR or each.subject == "journal table"] == [
        Finding(
            Level.OK, "journal table", "this user may not read 'outbox_journal', and needs not to harvest"
        )
    ]
    with pytest.raises(AccessDenied, match="outbox_journal"):
        roles.dialect("outbox_harvester").journal()


def test_a_watcher_sees_everything_and_check_says_what_it_lacks(roles: Roles) -> None:
    values = stash(roles, 6)
    hand = roles.hand("outbox_harvester")
    marked = hand.mark(6)
    hand.park([record.id for record in marked], marked[0].id)
    dialect = roles.dialect("outbox_watcher")
    with closing(dialect.watch()) as view:
        assert (view.backlog().records, view.parked().keys) == (len(values), 1)
        assert [each.holder for each in view.lane_statuses()] == ["outbox_harvester"]
        assert view.known_identity()
        assert (view.transactional_lanes(), view.origins(), view.takeovers()) == ({}, [], [])
        assert view.upkeep() is not None
    with closing(dialect.dead_letters(read_only=True)) as letters:
        assert [letter.record.id for letter in letters.find()] == [marked[0].id]
        assert letters.waiting("k0") == 2
    with closing(dialect.journal(read_only=True)) as journal:
        assert journal.entries() == []
    with closing(dialect.journal()) as journal, pytest.raises(AccessDenied):
        journal.begin(ACTION)
    assert dialect.migrations() == []
    [lacking] = [each.cure for each in dialect.check() if each.level is Level.ERROR]
    assert [text.split(" ON ")[0] for text in lacking.split("; ")] == [
        "GRANT UPDATE, DELETE",
        "GRANT INSERT, UPDATE",
        "GRANT INSERT, UPDATE",
        "GRANT INSERT, UPDATE, DELETE",
    ]
    with closing(dialect.connect()) as table, pytest.raises(AccessDenied):
        table.bump(1, "watcher")


@pytest.mark.parametrize("command", ["status", "fence show", "parked list", "migrate --dry-run"])
def test_a_watcher_runs_the_commands_that_only_look(
    roles: Roles, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stash(roles, 3)
    roles.hand("outbox_harvester")
    file = tmp_path / "outbox.yaml"
    dialect = {"driver": "mysql", "dataSource": roles.dialect("outbox_watcher").options.data_source}
    file.write_text(json.dumps({"harvest": {"dialect": dialect, "elector": "static", "engine": "inline"}}))
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "-f", str(file)])
    told = "".join(capsys.readouterr())
    assert ended.value.code == 0, told


def test_an_operator_decides_about_letters_leaders_and_takeovers(roles: Roles) -> None:
    stash(roles, 6)
    hand = roles.hand("outbox_harvester")
    heads = [record.id for record in hand.mark(6)[:3]]
    hand.park(heads, *heads)
    with closing(roles.dialect("outbox_operator").journal()) as journal:
        journal.end(journal.begin(ACTION), "done")
        assert [(entry.action, entry.outcome) for entry in journal.entries()] == [(ACTION, "done")]
    with closing(roles.dialect("outbox_operator").dead_letters()) as letters:
        assert letters.retry(heads[:1]) == heads[:1]
        assert letters.skip(heads[1:]) == heads[1:]
        assert letters.redrive(heads[1:2]) == heads[1:2]
    with closing(roles.dialect("outbox_operator").connect()) as table:
        assert table.bump(2, "operator") > hand.fence.token
        assert table.begin_takeover(2, "planned")
        assert table.end_takeover(2)
    successor = roles.hand("outbox_harvester")
    assert texts(successor.mark()) == ["v0", "v3", "v4", "v5", "v1"]


@pytest.mark.parametrize("user", [user for user in MAY if user != "outbox_owner"])
def test_only_the_owner_creates(roles: Roles, user: str) -> None:
    with pytest.raises(AccessDenied, match=r"CREATE TABLE|GRANT"):
        roles.dialect(user, "another").create()
    assert roles.owner.create() == []


def test_who_may_not_see_the_journal_finds_that_all_tables_exist(roles: Roles) -> None:
    assert roles.dialect("outbox_harvester").create() == []


def test_the_check_names_each_right_that_an_intake_lacks(roles: Roles) -> None:
    admin, name = roles.admin.cursor(), roles.name("outbox_harvester")
    admin.execute("CREATE TABLE events (id BIGINT PRIMARY KEY, topic TEXT, who TEXT, body TEXT)")
    admin.execute("INSERT INTO events VALUES (1, 'orders', 'taken', 'in')")
    intake = Intake(table="events", id="id", topic="{topic}", key="who", value="body")
    dialect = roles.dialect("outbox_harvester", intake=intake)

    def found() -> list[tuple[Level, str]]:
        return [(f.level, f.message) for f in dialect.check() if f.subject == "intake"]

    assert [level for level, _ in found()] == [Level.ERROR]
    admin.execute(f"GRANT SELECT ON events TO {name}")
    assert [said.split()[0] for _, said in found()] == ["INSERT", "DELETE"]
    columns = "kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
    admin.execute(f"GRANT INSERT ({columns}) ON outbox TO {name}")
    admin.execute(f"GRANT DELETE ON events TO {name}")
    assert [level for level, _ in found()] == [Level.WARNING], "of its order"
    with closing(dialect.connect()) as table:
        fence = table.enter(0, 1, table.bump(1, "x"))
        with closing(dialect.intakes()) as intakes:
            assert intakes.take(fence.token, 2**20)
        assert [record.key for record in table.mark(fence, uuid4(), 10)] == ["taken"]
    admin.execute("DROP TABLE events")
