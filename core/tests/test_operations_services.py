"""What operators do to outboxes in real databases, and what the journal says of it when something fails."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from outbox_api import (
    AccessDenied,
    DeadLetterStatus,
    DriverError,
    LeadershipLost,
    OutboxError,
    Poison,
    Record,
    Stasher,
    TransactionalLane,
)
from outbox_core import operations
from outbox_core.config import load
from outbox_core.operations import Operator, Verb
from outbox_core.settings import HarvestSettings
from psycopg.conninfo import make_conninfo

from .cli_runner import OUTBOX, changed, harvester, outbox, told, until
from .cli_runner import configure as configured
from .http_client import served, site_of

ALICE, BOB = (Operator(name, "cli", "a test") for name in ("alice", "bob"))
CARL = Operator("Čarli 🌍 \0" * 1_000, "http", "half \udc80" * 160)
KEYS = ("a", "b", "c")
NOTED_USERS = {
    "postgres": ", database user postgres",
    "mysql": ", database user root@%",
    "mariadb": ", database user root@%",
    "sqlite": "",
}
SOURCES = {
    "postgres": ("postgres", "postgres_dsn", ""),
    "mysql": ("mysql", "mysql_dsn", "?ssl-mode=DISABLED"),
    "mariadb": ("mysql", "mariadb_dsn", "?ssl-mode=DISABLED"),
    "sqlite": ("sqlite", "", ""),
}
GRANTS = """
    CREATE ROLE {0} LOGIN PASSWORD 's3cret';
    GRANT SELECT, INSERT, UPDATE, DELETE ON outbox, outbox_fence, outbox_fence_notes TO {0};
    GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_dead_letters TO {0};
    GRANT USAGE ON SEQUENCE outbox_id_seq TO {0};
    GRANT SELECT ON outbox_journal TO {0};
"""
Configure = Callable[[str], Path]
Command = subprocess.Popen[str]
Connection = psycopg.Connection[Any]


@pytest.fixture
def configure(request: pytest.FixtureRequest, tmp_path: Path) -> Configure:
    """Makes an outbox whose keys are all parked, with two rows each; returns its configuration."""

    def made(database: str) -> Path:
        driver, fixture, parameters = SOURCES[database]
        source = f"{request.getfixturevalue(fixture)}{parameters}" if fixture else str(tmp_path / "outbox.db")
        file = tmp_path / "outbox.yaml"
        harvest = {"dialect": driver, "dataSource": source, "elector": "static", "engine": "inline"}
        file.write_text(json.dumps({"harvest": harvest}))
        park(load(file).harvest)
        return file

    return made


def park(box: HarvestSettings) -> None:
    dialect = box.dialect.create()
    dialect.create()
    with closing(dialect.stash_connection()) as connection:
        stasher = Stasher(box.outbox, box.dialect.driver)
        stasher.stash_many(
            connection, [Record("orders", key, f"{key} {turn}") for turn in (0, 1) for key in KEYS]
        )
        connection.commit()
    with closing(dialect.connect()) as table:
        fence, leader = table.enter(0, 1, table.bump(1, "leader")), uuid4()
        marked = table.mark(fence, leader, 10)
        heads = [Poison(each.id, "too large", 5) for each in marked[: len(KEYS)]]
        assert table.park(fence, leader, heads, [each.id for each in marked]).rows == len(KEYS)


@pytest.mark.slow
def test_a_harvester_on_mariadb_serves_metrics_status_and_verbs(
    tmp_path: Path, mariadb_dsn: str, kafka_bootstrap: str, topic: str
):
    source = f"{mariadb_dsn}{SOURCES['mariadb'][2]}"
    plain = configured(tmp_path, source, kafka_bootstrap, dialect="mysql")
    file = served(plain, viewerTokens=["the-token-of-vera"], operatorTokens={"alice": "the-token-of-alice"})
    told(file, "init")
    box, site = load(file).harvest, site_of(file)
    dialect = box.dialect.create()

    def stash(*values: str) -> None:
        with closing(dialect.stash_connection()) as connection:
            Stasher(box.outbox, "mysql").stash_many(connection, [Record(topic, "k", each) for each in values])
            connection.commit()

    def ask(path: str, method: str = "GET", who: str = "vera", **body: object) -> Any:
        headers = (("Authorization", f"Bearer the-token-of-{who}"), ("Content-Type", "application/json"))
        answered = site.ask(method, path, *headers, body=json.dumps(body) if body else None)
        assert answered.code == 200, answered
        return answered.text if path == "/metrics" else json.loads(answered.text)

    with harvester(file):
        stash(*"abcde")
        series = 'outbox_delivery_duration_seconds_count{outbox_lane="%s",outbox_name="outbox"} 5.0'
        until(lambda: any(series % lane in ask("/metrics") for lane in (0, 1)))
        stash("x" * 2_000_000, "f")
        until(lambda: ask("/api/parked")["total"] == 1)
        assert ask("/status").keys() == json.loads(told(file, "status", "--json")).keys()
        assert (ask("/status")["parked"]["keys"], ask("/status")["backlog"]["records"]) == (1, 2)
        [letter] = ask("/api/parked")["letters"]
        done = ask("/api/skip", "POST", "alice", ids=[letter["id"]], reason="too large")
        assert done["changed"] == [letter["id"]]
        until(lambda: ask("/status")["backlog"]["records"] == 0)
        [entry] = ask("/api/journal")["entries"]
        assert [entry[name] for name in ("operator", "via", "verb", "reason", "outcome")] == [
            "alice", "http", "skip", "too large", "1 changed"
        ]  # fmt: skip
        until(lambda: bool(ask("/api/history")["points"]))


def execute(box: HarvestSettings, sql: str) -> None:
    with closing(box.dialect.create().stash_connection()) as connection:
        connection.cursor().execute(sql)
        connection.commit()


def parked(box: HarvestSettings) -> dict[str, int]:
    """Returns the parked keys with the ids of their letters."""
    return {each.record.key: each.record.id for each in operations.letters(box, DeadLetterStatus.PARKED)}


def noted(file: Path) -> list[tuple[str, str, str | None]]:
    entries: list[dict[str, Any]] = json.loads(told(file, "journal", "--json"))["entries"]
    return [(each["operator"], each["verb"], each["outcome"]) for each in entries]


@pytest.mark.parametrize("database", SOURCES)
def test_whatever_operators_do_is_noted(database: str, configure: Configure):
    file = configure(database)
    box = load(file).harvest
    ids = parked(box)
    assert [operations.waiting(box, ids[key]) for key in KEYS] == [2] * len(KEYS)
    [shown] = operations.reveal(box, [ids["a"]], ALICE)
    assert shown.record.value == "a 0"
    assert operations.change(box, Verb.SKIP, [ids["a"]], ALICE).changed == (ids["a"],)
    assert operations.change(box, Verb.REDRIVE, [ids["a"], ids["b"]], ALICE).gone == (ids["b"],)
    assert operations.waiting(box, ids["a"]) == 0
    with closing(box.dialect.create().dead_letters(read_only=True)) as dead:
        assert dead.waiting("a") == 2

    with ThreadPoolExecutor(2) as pool:
        both = pool.map(lambda who: operations.change(box, Verb.RETRY, [*ids.values()], who), (ALICE, BOB))
        retried = [number for each in both for number in each.changed]
    assert sorted(retried) == sorted((ids["b"], ids["c"])), "each is changed by one of the two"
    assert parked(box) == {}

    with closing(box.dialect.create().connect()) as table:
        token = table.bump(1, "leader")
        table.set_transactional(table.enter(0, 1, token), TransactionalLane(1, "sender", "place"))
        raised = operations.raise_fence(box, ALICE)
        assert (raised.holder, raised.fenced) == ("operator alice", f"leader, token {token}")
        with pytest.raises(LeadershipLost):
            table.enter(0, 1, token)
        with pytest.raises(OutboxError, match=rf"operator alice, token {raised.token} holds it now"):
            operations.raise_fence(box, BOB, token)
        forgotten = operations.forget(box, BOB)
        assert list(forgotten.notes) == [0]
        assert table.transactional_lanes() == {}
    found = noted(file)
    alice, bob = (name + NOTED_USERS[database] for name in ("alice", "bob"))
    assert found[:2] == [
        (bob, "forget", f"token {forgotten.token}"),
        (alice, "raise-fence", f"token {raised.token}"),
    ]
    assert {each[:2] for each in found[2:4]} == {(alice, "retry"), (bob, "retry")}
    assert found[4:] == [
        (alice, "redrive", "1 changed, 1 gone"),
        (alice, "skip", "1 changed"),
        (alice, "reveal", "1 shown"),
    ]
    assert operations.entries(box, 1)[0].action.reason == "a test"


@pytest.mark.parametrize("database", SOURCES)
def test_of_all_who_fence_a_leader_at_once_one_does(database: str, configure: Configure):
    box = load(configure(database)).harvest
    with closing(box.dialect.create().connect()) as table:
        token = table.bump(1, "leader")

    def fence(_: int) -> int | str:
        try:
            return operations.raise_fence(box, ALICE, token).token
        except OutboxError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(fence, range(4)))
    refused = [each for each in found if isinstance(each, str)]
    assert len(refused) == 3
    assert all("nothing was done" in each for each in refused)


@pytest.mark.parametrize("database", SOURCES)
def test_whatever_operators_are_called_their_deeds_are_done_and_noted(database: str, configure: Configure):
    box = load(configure(database)).harvest
    assert operations.raise_fence(box, CARL).holder == CARL.holder
    [entry] = operations.entries(box)
    assert entry.action.operator.startswith(r"Čarli 🌍 \0Čarli")
    assert entry.action.reason.startswith(r"half \udc80half")
    assert (entry.outcome or "").startswith("token ")


@pytest.mark.parametrize("database", SOURCES)
def test_without_a_journal_nothing_is_done(database: str, configure: Configure):
    file = configure(database)
    box = load(file).harvest
    before = parked(box)
    execute(box, "DROP TABLE outbox_journal")
    with pytest.raises(DriverError, match=r"nothing was done, .* run 'outbox (init|migrate)'") as caught:
        operations.raise_fence(box, ALICE)
    [finding] = [each for each in box.dialect.create().check() if each.subject == "journal table"]
    [cure] = set(re.findall("run 'outbox (init|migrate)'", f"{caught.value} {finding.cure}"))
    refused = outbox(file, "parked", "retry", "--all")
    assert refused.returncode == 1
    assert "nothing was done" in refused.stderr
    assert parked(box) == before
    [lane] = json.loads(told(file, "fence", "show", "--json"))["lanes"]
    assert lane["holder"] == "leader"
    assert outbox(file, "journal").returncode == 1
    assert "to version" not in told(file, cure)
    told(file, "parked", "retry", "--all", "--reason", "the topic exists")
    assert parked(box) == {}
    assert [each[1:] for each in noted(file)] == [("retry", "3 changed")]


def test_an_operator_needs_the_right_to_write_the_journal(configure: Configure, postgres_dsn: str):
    file, role = configure("postgres"), f"operator_{uuid4().hex[:8]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute(GRANTS.format(role).encode())
        try:
            other = changed(file, dataSource=make_conninfo(postgres_dsn, user=role, password="s3cret"))
            result = outbox(other, "parked", "retry", "a")
            assert told(other, "journal") == "no operator has done anything yet\n", "to read it is permitted"
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
    assert result.returncode == 77
    assert "nothing was done" in result.stderr
    assert f'GRANT INSERT, UPDATE ON "public"."outbox_journal" TO "{role}"' in result.stderr
    assert [*parked(load(file).harvest)] == [*KEYS]


def test_a_watcher_is_told_which_role_a_verb_needs_and_not_how_to_become_a_harvester(
    configure: Configure, postgres_dsn: str
):
    file, role = configure("postgres"), f"watcher_{uuid4().hex[:8]}"
    tables = "outbox, outbox_fence, outbox_fence_notes, outbox_dead_letters, outbox_journal"
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute(
            f"CREATE ROLE {role} LOGIN PASSWORD 's3cret'; GRANT SELECT ON {tables} TO {role}".encode()
        )
        try:
            other = changed(file, dataSource=make_conninfo(postgres_dsn, user=role, password="s3cret"))
            done = [
                outbox(other, *each.split(), "--yes")
                for each in (
                    "parked retry a",
                    "parked skip a",
                    "fence bump",
                    "pause --topic orders",
                    "resume --topic orders",
                )
            ]
            box = load(other).harvest
            with pytest.raises(AccessDenied, match="operator's account"):
                operations.erase(box, "a", ALICE)
            wrong = changed(file, dataSource=make_conninfo(postgres_dsn, user=role, password="wrong"))
            login = outbox(wrong, "parked", "retry", "a").stderr
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
    for result in done:
        said = " ".join(result.stderr.split())
        assert result.returncode == 77, result.args
        assert f"user '{role}' lacks the privileges" in said
        assert "this needs an operator's account, see docs/credentials.md#roles" in said
        assert "GRANT" not in said
    assert "operator's account" not in login
    assert [*parked(load(file).harvest)] == [*KEYS]


@contextmanager
def held_at_work(file: Path, dsn: str, *arguments: str) -> Iterator[tuple[Command, Connection]]:
    """Starts a command that waits for a lock with its action, and gives it the lock in the end."""
    times = {"lockTimeout": "5m", "statementTimeout": "5m"}
    patient = changed(file, dialect={"driver": "postgres", **times})
    with psycopg.connect(dsn) as blocker:
        blocker.execute("LOCK TABLE outbox_dead_letters IN SHARE MODE")
        command = [OUTBOX, *arguments, "-f", str(patient)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                until(lambda: noted(file) != [])
                yield process, blocker
            finally:
                blocker.rollback()


def test_a_command_that_is_killed_at_its_work_is_seen_in_the_journal(configure: Configure, postgres_dsn: str):
    file = configure("postgres")
    box = load(file).harvest
    with held_at_work(file, postgres_dsn, "parked", "skip", "--all", "--yes") as (process, _):
        process.kill()
        process.communicate()
    assert [each[1:] for each in noted(file)] == [("skip", None)]
    assert "not known: interrupted" in told(file, "journal")
    operations.change(box, Verb.SKIP, [*parked(box).values()], ALICE)
    assert {each.record.key for each in operations.letters(box, DeadLetterStatus.SKIPPED)} == {*KEYS}


def test_a_deed_whose_outcome_cannot_be_noted_is_done(configure: Configure, postgres_dsn: str):
    file = configure("postgres")
    with held_at_work(file, postgres_dsn, "parked", "retry", "a") as (process, connection):
        connection.execute("ALTER TABLE outbox_journal RENAME TO elsewhere; COMMIT")
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "done, but the journal lacks the outcome (1 changed)" in said
    execute(load(file).harvest, "ALTER TABLE elsewhere RENAME TO outbox_journal")
    assert [*parked(load(file).harvest)] == ["b", "c"]
    assert [each[1:] for each in noted(file)] == [("retry", None)]


def test_a_deed_that_has_waited_in_vain_for_a_lock_is_not_done(configure: Configure, postgres_dsn: str):
    file = configure("postgres")
    box = load(changed(file, dialect={"driver": "postgres", "lockTimeout": "100ms"})).harvest
    before = parked(box)
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("SELECT FROM outbox_dead_letters FOR UPDATE")
        with pytest.raises(DriverError, match="nothing was done: cannot skip dead letters") as caught:
            operations.change(box, Verb.SKIP, [*before.values()], ALICE)
    assert caught.value.retryable
    assert parked(box) == before
    [(_, verb, outcome)] = noted(file)
    assert (verb, (outcome or "").partition(":")[0]) == ("skip", "failed")
