"""``outbox kept`` and ``outbox replay`` on real databases."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from outbox_api import OutboxError, Record, Stasher
from outbox_core import operations
from outbox_core.config import load
from outbox_core.operations import Choice, Operator, Pace, Wanted, replaying
from outbox_core.settings import HarvestSettings
from psycopg.conninfo import make_conninfo

from .cli_runner import changed, outbox, told

ROOT = Path(__file__).parents[2]
ALICE = Operator("alice", "cli", "a test")
SOURCES = {"postgres": "postgres_dsn", "sqlite": ""}
every_database = pytest.mark.parametrize("database", SOURCES)
Made = Callable[..., Path]


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Makes an outbox that keeps records; returns its configuration."""

    def made(database: str, **keep: object) -> Path:
        fixture = SOURCES[database]
        source = request.getfixturevalue(fixture) if fixture else str(tmp_path / "outbox.db")
        file = tmp_path / "outbox.yaml"
        dialect = {"driver": database, "keep": {"for": "24h", **keep}}
        harvest = {"dialect": dialect, "dataSource": source, "elector": "static", "engine": "inline"}
        file.write_text(json.dumps({"harvest": harvest}))
        load(file).harvest.dialect.create().create()
        return file

    return made


def stash(box: HarvestSettings, count: int, topic: str = "orders") -> None:
    with closing(box.dialect.create().stash_connection()) as connection:
        records = [Record(topic, f"k{n % 3}", f"secret {n}", (("seq", str(n)),)) for n in range(count)]
        Stasher(box.outbox, box.dialect.driver).stash_many(connection, records)
        connection.commit()


def deliver(box: HarvestSettings) -> list[str]:
    """Delivers all that waits; returns the values."""
    with closing(box.dialect.create().connect()) as table:
        fence, leader = table.enter(0, 1, table.bump(1, "leader")), uuid4()
        found = table.mark(fence, leader, 100_000)
        table.purge(fence, leader, [each.id for each in found])
    return [str(each.value) for each in found]


def waiting(box: HarvestSettings) -> int:
    with closing(box.dialect.create().watch()) as view:
        return view.backlog().records or 0


def asked(file: Path, *arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(told(file, *arguments, "--json"))
    return answer


def pace(stop_after: int = 1_000_000, rate: int | None = None, held_up: list[str] | None = None) -> Pace:
    """Returns a pace that stops at the given call of ``wait``."""
    calls = iter(range(1_000_000))
    told: list[str] = [] if held_up is None else held_up
    return Pace(lambda _: next(calls) >= stop_after, lambda _: None, lambda: told.append("held up"), rate)


@every_database
def test_kept_records_are_counted_listed_and_shown(database: str, made: Made):
    file = made(database)
    box = load(file).harvest
    assert told(file, "kept", "days") == "nothing is kept\n"
    assert told(file, "kept", "list") == "no such record is kept\n"
    stash(box, 9)
    stash(box, 3, "bills")
    deliver(box)
    found = asked(file, "kept", "days")
    assert (found["records"], sum(day["records"] for day in found["days"])) == (12, 12)
    assert found["days"][0]["day"] == found["days"][0]["since"][:10]
    assert "12" in told(file, "kept", "days")
    listed = asked(file, "kept", "list", "--key", "k1", "--topic", "order*", "--since", "1h")["records"]
    assert [each["id"] - listed[0]["id"] for each in listed] == [0, 3, 6]
    assert "secret" not in json.dumps(listed) + told(file, "kept", "list")
    assert asked(file, "kept", "list", "--until", "1h")["records"] == []
    rest = asked(file, "kept", "list", "--where", f"position > {listed[0]['position']}", "--limit", "2")
    assert [each["key"] for each in rest["records"]] == ["k2", "k0"]
    shown = asked(file, "kept", "show", str(listed[0]["position"]), "--reason", "to look")
    assert (shown["value"], shown["headers"]) == ("secret 1", [["seq", "1"]])
    assert "secret 1" in told(file, "kept", "show", str(listed[0]["position"]))
    missing = outbox(file, "kept", "show", "4711")
    assert (missing.returncode, "no record is kept at position 4711" in missing.stderr) == (1, True)
    position = listed[0]["position"]
    noted = [(each["verb"], each["subject"], each["outcome"]) for each in asked(file, "journal")["entries"]]
    assert noted == [("reveal", f"kept record {position}, key 'k1'", "1 shown")] * 2


@every_database
def test_records_are_replayed_once_for_a_name(database: str, made: Made):
    file = made(database)
    box = load(file).harvest
    stash(box, 1_200)
    first = deliver(box)
    ask = ("replay", "--name", "again", "--since", "1h", "--where", "id > 0")
    dry = asked(file, *ask, "--dry-run")
    assert (dry["records"], dry["keys"], dry["resumes"], dry["first"]["key"]) == (1_200, 3, False, "k0")
    assert "behind everything that the outbox has" in told(file, *ask, "--dry-run")
    refused = outbox(file, *ask)
    assert (refused.returncode, "add --yes" in refused.stderr) == (2, True)
    assert (waiting(box), asked(file, "journal")["entries"]) == (0, [])
    done = asked(file, *ask, "--yes", "--reason", "an incident")
    assert {name: done[name] for name in ("name", "chosen", "stashed", "ended")} == {
        "name": "again", "chosen": 1_200, "stashed": 1_200, "ended": True
    }  # fmt: skip
    assert deliver(box) == first
    again = outbox(file, *ask, "--yes")
    assert (again.returncode, "'again' ended at" in again.stderr) == (1, True)
    assert waiting(box) == 0
    [entry] = asked(file, "journal")["entries"]
    assert (entry["verb"], entry["reason"]) == ("replay", "an incident")
    assert (entry["subject"], entry["outcome"]) == (
        "again: since 1h, id > 0", "1,200 of 1,200 records stashed"
    )  # fmt: skip
    both = asked(file, "replay", "--name", "third", "--key", "k1", "--to", "repaired", "--yes")
    assert both["chosen"] == 800, "what was replayed is kept, too"
    nothing = told(file, "replay", "--name", "fourth", "--topic", "other", "--yes")
    assert "nothing is kept that was chosen" in nothing


@every_database
def test_what_cannot_be_chosen_is_told(database: str, made: Made):
    file = made(database)
    for option, value, words in (
        ("--where", "leader_id = 3", "Columns are kafka_topic, kafka_key"),
        ("--where", "id LIKE 3", "operators are = != < <= > >="),
        ("--where", "id = 1 OR 1 = 1", "expected a whole number"),
        ("--where", "kafka_key > a", "only by = !="),
        ("--where", "delivered_at > 2h", "expected a time such as"),
        ("--since", "yesterday", "or how long ago"),
        ("--name", "a b", "is no name of a replay"),
        ("--to", "a b", "is no topic"),
    ):
        done = outbox(file, "replay", "--name", "x", option, value)
        said = " ".join(done.stderr.replace("│", " ").split())
        assert (done.returncode, words in said) == (2, True), said


@every_database
def test_records_without_values_are_refused(database: str, made: Made):
    file = made(database, without=["value", "headers"])
    box = load(file).harvest
    stash(box, 3)
    deliver(box)
    refused = outbox(file, "replay", "--name", "x", "--yes")
    assert refused.returncode == 1
    assert "of 3 records 3 were kept without their value" in " ".join(refused.stderr.split())
    assert (waiting(box), asked(file, "journal")["entries"]) == (0, [])


def test_records_without_headers_are_replayed(made: Made):
    file = made("sqlite", without=["headers"])
    box = load(file).harvest
    stash(box, 3)
    deliver(box)
    assert "3 records of these without headers" in told(file, "replay", "--name", "x", "--dry-run")
    assert asked(file, "replay", "--name", "x", "--yes")["stashed"] == 3


@every_database
def test_a_replay_that_was_stopped_goes_on(database: str, made: Made):
    file = made(database)
    box = load(file).harvest
    stash(box, 1_200)
    first = deliver(box)
    wanted = Wanted(name="x", choice=Choice(since="1h"))
    done = operations.replay(box, operations.prepare_replay(box, wanted), ALICE, pace(stop_after=1))
    assert (done.state.done, done.outcome) == (replaying.PAGE, "")
    stash(box, 1, "live")
    other = outbox(file, "replay", "--name", "x", "--yes")
    assert (other.returncode, "began at" in other.stderr) == (1, True)
    prepared = operations.prepare_replay(box, wanted)
    assert (prepared.resumed, prepared.kept.records) == (True, 700)
    assert prepared.chosen.since == done.state.since, "as it was when it began"
    stopped = operations.replay(box, prepared, ALICE, pace(stop_after=1))
    assert stopped.state.done == 2 * replaying.PAGE
    last = operations.replay(box, operations.prepare_replay(box, wanted), ALICE, pace())
    assert (last.state.done, last.outcome) == (1_200, "1,200 of 1,200 records stashed")
    assert deliver(box) == [*first[:500], "secret 0", *first[500:]]
    entries = operations.entries(box)
    assert [each.outcome for each in entries] == [
        "1,200 of 1,200 records stashed",
        "stopped: 1,000 of 1,200 records stashed",
        "1,200 of 1,200 records stashed",
    ]


@every_database
def test_of_two_that_begin_at_once_one_goes_on_with_the_other(database: str, made: Made):
    box = load(made(database)).harvest
    stash(box, 1_200)
    first = deliver(box)
    wanted = Wanted(name="x", choice=Choice())
    one, two = (operations.prepare_replay(box, wanted) for _ in range(2))
    operations.replay(box, one, ALICE, pace(stop_after=1))
    assert operations.replay(box, two, ALICE, pace()).state.done == 1_200
    with pytest.raises(OutboxError, match="ended at"):
        operations.replay(box, one, ALICE, pace())
    other = operations.prepare_replay(box, Wanted(name="y", choice=Choice(key="k1")))
    operations.replay(
        box, operations.prepare_replay(box, replace(wanted, name="y")), ALICE, pace(stop_after=1)
    )
    with pytest.raises(OutboxError, match="another choice"):
        operations.replay(box, other, ALICE, pace())
    assert deliver(box) == first + first[:500]


def test_a_replay_waits_while_many_rows_wait(made: Made, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replaying, "MOST_WAITING", 20)
    monkeypatch.setattr(replaying, "_LONG", 0.0)
    box = load(made("sqlite")).harvest
    stash(box, 30)
    deliver(box)
    stash(box, 21)
    prepared = operations.prepare_replay(box, Wanted(name="x", choice=Choice()))
    held: list[str] = []
    done = operations.replay(box, prepared, ALICE, pace(stop_after=3, held_up=held))
    assert (done.state.done, held) == (0, ["held up"])
    deliver(box)
    stash(box, 20)
    prepared = operations.prepare_replay(box, Wanted(name="x", choice=Choice()))
    assert operations.replay(box, prepared, ALICE, pace(stop_after=1)).state.done == 30


def test_a_rate_bounds_a_replay(made: Made, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replaying, "monotonic", lambda: 100.0)  # its steps take no time
    box = load(made("sqlite")).harvest
    stash(box, 50)
    deliver(box)
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return False

    prepared = operations.prepare_replay(box, Wanted(name="x", choice=Choice()))
    operations.replay(box, prepared, ALICE, Pace(wait, lambda _: None, lambda: None, rate=100))
    assert waits == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5]), "pages of a tenth of a second"


def test_roles_have_the_rights_that_the_page_names(made: Made, postgres_dsn: str):
    file, suffix = made("postgres"), uuid4().hex[:8]
    box = load(file).harvest
    stash(box, 3)
    deliver(box)
    texts = (
        (ROOT / "plugins/postgres/README.md").read_text().split("## Roles\n")[1].split("\n## ")[0],
        (ROOT / "docs/kept-records.md").read_text().split("to be forgotten\n")[1],
    )
    found = re.findall(r"^```sql\n(.*?)^```", "".join(texts), re.DOTALL | re.MULTILINE)
    names = ("application", "watcher", "operator", "harvester", "eraser")
    grants = re.sub(rf"\boutbox_({'|'.join(names)})\b", rf"\1_{suffix}", "".join(found))
    roles = [f"{role}_{suffix}" for role in names]

    def as_role(role: str) -> Path:
        source = make_conninfo(postgres_dsn, user=f"{role}_{suffix}", password="s3cret")
        return changed(file, dataSource=source)

    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        for role in roles:
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 's3cret'".encode())
        try:
            admin.execute(grants.replace("SCHEMA app", "SCHEMA public").replace("app.", "").encode())
            assert asked(as_role("watcher"), "kept", "days")["records"] == 3
            assert len(asked(as_role("watcher"), "kept", "list")["records"]) == 3
            assert outbox(as_role("watcher"), "replay", "--name", "x", "--yes").returncode == 77
            assert waiting(box) == 0
            assert asked(as_role("operator"), "replay", "--name", "x", "--yes")["stashed"] == 3
            assert len(deliver(load(as_role("harvester")).harvest)) == 3
            forget = ("forget", "--key", "k1", "--tombstone", "orders", "--yes")
            assert asked(as_role("eraser"), *forget)["kept"] == 2
        finally:
            for role in roles:
                admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_without_a_journal_nothing_is_replayed(made: Made):
    file = made("sqlite")
    box = load(file).harvest
    stash(box, 3)
    deliver(box)
    with closing(box.dialect.create().stash_connection()) as connection:
        connection.execute("DROP TABLE outbox_journal")
        connection.commit()
    assert outbox(file, "replay", "--name", "x", "--yes").returncode == 1
    assert waiting(box) == 0


def test_without_kept_records_a_cure_is_named(tmp_path: Path, made: Made):
    file = changed(made("sqlite"), dialect="sqlite", dataSource=str(tmp_path / "other.db"))
    told(file, "init")
    done = outbox(file, "kept", "days")
    assert (done.returncode, "there is no table of kept records" in done.stderr) == (1, True)


@every_database
def test_a_replay_that_is_given_up_ends_as_it_is(database: str, made: Made):
    file = made(database)
    box = load(file).harvest
    stash(box, 1_200)
    first = deliver(box)
    wanted = Wanted(name="x", choice=Choice(until="2999-01-01"))
    prepared = operations.prepare_replay(box, wanted)
    operations.replay(box, prepared, ALICE, pace(stop_after=1))
    [under_way] = operations.list_replays(box)
    assert (under_way.name, under_way.ended) == ("x", None)
    assert under_way.state is not None
    assert under_way.state.progress == "500 of 1,200 records stashed"
    given_up: list[Any] = []

    def wait(_: float) -> bool:
        if not given_up:
            command = ("replay", "--name", "x", "--give-up", "--reason", "the wrong topic", "--yes")
            given_up.append(asked(file, *command))
        return False

    done = operations.replay(
        box, operations.prepare_replay(box, wanted), ALICE, Pace(wait, lambda _: None, lambda: None)
    )
    assert given_up == [{"outbox": "outbox", "name": "x", "chosen": 1_200, "stashed": 500, "ended": True}]
    assert (done.outcome, done.state.done) == ("given up: 500 of 1,200 records stashed", 500)
    assert deliver(box) == first[:500]
    noted = [(each.action.verb, each.action.subject, each.outcome) for each in operations.entries(box)]
    assert noted == [
        ("give-up", "replay x", "500 of 1,200 records stashed"),
        ("replay", "x: goes on behind position 500", "given up: 500 of 1,200 records stashed"),
        ("replay", "x: until 2999-01-01", "given up: 500 of 1,200 records stashed"),
    ]
    [ended] = operations.list_replays(box)
    assert (ended.name, ended.outcome) == ("x", "given up: 500 of 1,200 records stashed")
    for name, words in (("x", "given up: 500 of 1,200"), ("y", "there is no replay 'y'")):
        refused = outbox(file, "replay", "--name", name, "--give-up", "--yes")
        assert (refused.returncode, words in refused.stderr) == (1, True), refused.stderr
    again = outbox(file, "replay", "--name", "x", "--until", "2999-01-01", "--yes")
    assert (again.returncode, "another one needs another name" in again.stderr) == (1, True)
    assert waiting(box) == 0
