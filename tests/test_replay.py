"""A replay beside live records, killed twice: nothing is missing or twice, and each key keeps its order."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
from outbox_api import Record, Stasher

from .harvesters import Fleet, outbox, until
from .shop import PARTITIONS, Shop
from .topics import ends, messages

KEYS = 200
OLD = 8_000
KEEP = {"driver": "postgres", "keep": {"for": "1h"}}
PROGRESS = "SELECT outcome FROM outbox_journal WHERE verb = 'replay' AND ended IS NULL ORDER BY begun LIMIT 1"
PLACE = 4
"""Of the number of records done, in the state of a replay."""
HELD = 2_500
HOLD = f"""
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared((NEW.outcome::json ->> {PLACE})::int / {HELD});
    RETURN NEW;
END $$;
CREATE TRIGGER held BEFORE UPDATE ON outbox_journal FOR EACH ROW
WHEN (NEW.verb = 'replay' AND NEW.ended IS NULL) EXECUTE FUNCTION hold()
"""
"""Lets a replay wait that has done so many records, or twice as many, so that some are left for the next."""
WAITING = "FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"


def written(first: int, count: int, word: str, topic: str) -> list[Record]:
    return [Record(topic, f"key-{n % KEYS}", f"{word} {n}") for n in range(first, first + count)]


def number(connection: psycopg.Connection, sql: str) -> int:
    row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def living(shop: Shop) -> Iterator[list[int]]:
    """Writes live records, 500 a second, until the block ends; then the list has their number."""
    ending, stasher, total = Event(), Stasher(), list[int]()

    def write() -> None:
        done, begin = 0, time.monotonic()
        with psycopg.connect(shop.dsn) as connection:
            while not ending.wait(max(0.0, begin + done / 500 - time.monotonic())):
                stasher.stash_many(connection, written(done, 10, "live", shop.topic))
                connection.commit()
                done += 10
        total.append(done)

    thread = Thread(target=write)
    thread.start()
    try:
        yield total
    finally:
        ending.set()
        thread.join()


def start(file: Path, last: int) -> subprocess.Popen[str]:
    program = str(Path(sys.executable).with_name("outbox"))
    command = [
        program,
        "replay",
        "-f",
        str(file),
        "--name",
        "again",
        "--where",
        f"id <= {last}",
        "--yes",
        "--json",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed(file: Path, last: int, connection: psycopg.Connection, held: int) -> int:
    """Starts a replay, and kills it where it is held; returns how many records are done."""
    waiting = f"SELECT count(*) {WAITING}"
    connection.execute("SELECT pg_advisory_lock(%s)", (held,))
    with start(file, last) as process:
        until(lambda: number(connection, waiting) == 1, "the replay is held", 120)
        process.kill()
        process.wait()
    connection.execute(f"SELECT pg_terminate_backend(pid) {WAITING}".encode())
    until(lambda: number(connection, waiting) == 0, "its session has ended", 60)
    connection.execute("SELECT pg_advisory_unlock(%s)", (held,))
    row = connection.execute(PROGRESS).fetchone()
    assert row is not None
    return int(json.loads(row[0])[PLACE])


def test_a_replay_that_is_killed_goes_on_beside_live_records(
    shop: Shop, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "outbox.yaml"
    file.write_text(json.dumps({"harvest": {"dataSource": shop.dsn, "dialect": KEEP}}))
    assert outbox(file, "init")["tables_created"] == ["outbox_kept"]
    stasher = Stasher()
    with psycopg.connect(shop.dsn) as application:
        stasher.stash_many(application, written(0, OLD, "old", shop.topic))
    fleet.start("first", dialect=KEEP, delivery="exactly-once").wait_for("leader acquired", 60)
    with shop.connect() as connection:
        until(lambda: number(connection, "SELECT count(*) FROM outbox_kept") == OLD, "all is kept", 120)
        last = number(connection, "SELECT max(id) FROM outbox_kept")
        connection.execute(HOLD)
        with living(shop) as live:
            first, second = (killed(file, last, connection, held) for held in (1, 2))
            assert 0 < first < HELD <= second < 2 * HELD
            with start(file, last) as process:
                told = json.loads(process.communicate(timeout=120)[0])
        assert (process.returncode, told["chosen"], told["stashed"], told["ended"]) == (0, OLD, OLD, True)
        until(lambda: number(connection, "SELECT count(*) FROM outbox") == 0, "all is delivered", 120)
        assert number(connection, "SELECT count(*) FROM outbox_kept") == 2 * OLD + live[0]
    expected = {"old": OLD, "live": live[0], "again": OLD}
    for kind, found in delivered(shop).items():
        assert sum(map(len, found.values())) == expected[kind]
        for key, numbers in found.items():
            assert numbers == list(range(int(key.split("-")[1]), expected[kind], KEYS)), (kind, key)
    entries: list[dict[str, Any]] = outbox(file, "journal")["entries"]
    assert [entry["outcome"] for entry in entries] == [
        "8,000 of 8,000 records stashed", None, "8,000 of 8,000 records stashed"
    ]  # fmt: skip


def delivered(shop: Shop) -> dict[str, dict[str, list[int]]]:
    """Returns kind → key → the numbers of its records, in the order of the topic."""
    found: dict[str, dict[str, list[int]]] = {kind: defaultdict(list) for kind in ("old", "live", "again")}
    for message in messages(shop.kafka.bootstrap, shop.topic, ends(shop.admin, shop.topic, PARTITIONS)):
        kind, place = (message.value() or b"").decode().split()
        headers = dict(message.headers() or [])
        if "outbox-replay" in headers:
            assert (kind, headers["outbox-replay"]) == ("old", b"again")
            kind = "again"
        found[kind][(message.key() or b"").decode()].append(int(place))
    return found
