"""What waits, as page and command line tell it of PostgreSQL: a hot key, parked ones, a paused topic."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from pathlib import Path

import psycopg
import pytest
from outbox_api import Record, Stasher
from outbox_console import work
from outbox_core import operations
from outbox_core.config import load
from outbox_core.operations import Operator

from .cli_runner import told
from .http_server import ALICE, OPERATORS, VIEWER, Server, serving, settings_of
from .page_states import HOSTILE
from .test_operations_services import park

LONG = "ä" * 30_000
PERSON = (("Authorization", f"Bearer {VIEWER}"), ("Accept", "text/html"))
FORM = ("Content-Type", "application/x-www-form-urlencoded")


@pytest.fixture
def site(postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Path]]:
    """Parked keys a, b and c with two rows each; 500 rows of a hot key; some others; one topic is paused."""
    monkeypatch.setattr(work, "PATIENCE", 60.0)
    harvest = {"dataSource": postgres_dsn, "elector": "static", "engine": "inline"}
    file = tmp_path / "outbox.yaml"
    file.write_text(json.dumps({"harvest": harvest}))
    box = load(file).harvest
    park(box)
    with closing(box.dialect.create().stash_connection()) as connection:
        rows = [Record("bills", "hot", "v")] * 500
        rows += [Record("bills", HOSTILE, "v"), Record("bills", "", None), Record("later", LONG, "v" * 9000)]
        Stasher(box.outbox, box.dialect.driver).stash_many(connection, rows)
        connection.commit()
    operations.pause(box, "later", Operator("ann", "cli", "a test"), None)
    settings = settings_of(harvest, viewerTokens=[VIEWER], operatorTokens=OPERATORS)
    with serving(settings) as server:
        yield server, file


def page_of(site: Server, path: str, *headers: tuple[str, str], body: str | None = None) -> str:
    answered = site.ask("GET" if body is None else "POST", path, *PERSON, *headers, body=body)
    while "Being counted" in answered.text:
        answered = site.ask("GET", path, *PERSON)
    assert answered.code == 200, answered
    assert "<script>alert" not in answered.text
    return answered.text


def read(site: Server, path: str, *headers: tuple[str, str], body: str | None = None) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", page_of(site, path, *headers, body=body)))


def test_the_page_says_what_waits_and_why(site: tuple[Server, Path], postgres_dsn: str):
    server, _ = site
    recent = {"recent": {"seconds": 10, "topics": {"bills": [125, 5]}}}
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("UPDATE outbox_fence SET metrics = %s", (json.dumps(recent),))
    page = read(server, "/waiting")
    assert "Seen: 509 rows" in page
    assert re.search(r"bills\s+502\s+99%\s+\S+\s+0\s+free\s+0\s+12.5\s+0.5", page)
    assert re.search(r"orders\s+6\s+1%\s+\S+\s+0\s+parked\s+3\s+\S\s+\S\s", page)
    assert re.search(r"later\s+1\s+0%\s+\S+\s+0\s+paused", page)
    bills = read(server, "/waiting?topic=bills")
    assert "One key has 500 of its rows." in bills
    assert "(the empty key)" in bills
    assert "Parked keys of it: 3." in read(server, "/waiting?topic=orders")
    assert "It is paused." in read(server, "/waiting?topic=later")
    assert "Of topic none there is none" in read(server, "/waiting?topic=none")


def test_the_rows_of_a_key_are_led_to_without_naming_it(site: tuple[Server, Path]):
    server, _ = site
    html = page_of(server, "/waiting")
    addresses = [unescape(each) for each in re.findall(r'href="(/waiting/key[^"]*)"', html)]
    assert len(addresses) == 7
    keys = {re.search(r"Key (.{1,8})", read(server, each))[1] for each in addresses}  # type: ignore[index]  # it is there
    assert len(keys) == 7
    hot = read(server, "/waiting/key", FORM, body="key=hot")
    assert "in flight included: 500 . The first 100:" in " ".join(hot.split())
    assert hot.count(" bills ") == 100
    assert "30,000 characters" in read(server, addresses[-1])
    assert server.ask("GET", "/waiting/key?id=9999999", *PERSON).code == 404
    assert server.ask("GET", "/waiting/key?id=x", *PERSON).code == 400
    assert "in flight included: 1 ." in " ".join(read(server, "/waiting/key", FORM, body="key=").split())


def test_the_command_line_says_the_same(site: tuple[Server, Path]):
    _, file = site
    data = json.loads(told(file, "waiting", "--json"))
    assert (data["rows"], data["exact"]) == (509, True)
    assert [(each["topic"], each["state"]) for each in data["topics"]] == [
        ("bills", "free"), ("orders", "parked"), ("later", "paused")
    ]  # fmt: skip
    assert [each["state"] for each in data["keys"]][:4] == ["free", "parked", "parked", "parked"]
    assert len(data["keys"][-1]["key"]) == 1001
    text = told(file, "waiting", "--topic", "bills")
    assert "hot" in text
    assert "orders" not in text
    assert "none of the first 509 rows" in told(file, "waiting", "--topic", "none")
    rows = json.loads(told(file, "waiting", "--key", LONG, "--json"))
    assert (rows["rows"], rows["first"][0]["size"]) == (1, 69_000)
    assert "500 rows of this key" in told(file, "waiting", "--key", "hot")
    assert told(file, "waiting", "--key", "none") == "no row of this key waits\n"


def test_many_parked_keys_are_changed_in_several_transactions(site: tuple[Server, Path], postgres_dsn: str):
    server, file = site
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("DELETE FROM outbox WHERE kafka_topic = 'bills'")
        connection.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)"
            " SELECT 'many', 'k' || n, 'v', '{}', '{}' FROM generate_series(1, 2500) n"
        )
        connection.execute(
            "INSERT INTO outbox_dead_letters (name, id, kafka_topic, kafka_key, kafka_value,"
            " kafka_header_keys, kafka_header_values, status, reason, attempts, since)"
            " SELECT l.name, o.id, o.kafka_topic, o.kafka_key, 'v', '{}', '{}', 'parked', 'many', 1, now()"
            " FROM outbox o, (SELECT name FROM outbox_dead_letters LIMIT 1) l WHERE o.kafka_topic = 'many'"
        )
    headers = (("Authorization", f"Bearer {ALICE}"), ("Content-Type", "application/json"))
    body = json.dumps({"where": {"topic": "many"}, "expected": 2500, "reason": "x"})
    done = json.loads(server.ask("POST", "/api/skip", *headers, body=body).text)
    assert (len(done["changed"]), done["fewer"]) == (2500, 0)
    box = load(file).harvest
    assert [each.status.value for each in operations.letters(box)].count("skipped") == 2500
    [entry] = operations.entries(box, 1)
    assert entry.action.subject.startswith("2500 records (topic many), ")
    assert entry.outcome == "2500 changed"
