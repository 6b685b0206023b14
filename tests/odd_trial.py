"""``python -m tests.odd_trial``: harvests odd rows beside ordinary ones, and counts what became of each."""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # left out of its types
from outbox_servers.services import Kafka, KafkaBroker, MariaDbServer, MySqlServer, PostgresServer

from . import odd_transform
from .databases import Database, MySql, Postgres, Sqlite
from .harvesters import Harvester, outbox, until
from .odd_rows import INTAKE, OddRows, Writer, create_source, permit_nulls
from .topics import ends, messages

DATABASES = ("postgres", "mysql", "mariadb", "sqlite")
KINDS = ("ordinary", "odd", "transforms")
DELIVERIES = ("at-least-once", "exactly-once")
PARTITIONS = 4
TICK_SECONDS = 0.05
"""One ordinary record is committed in each tick, beside the odd rows."""
SETTLE_SECONDS = 240.0
"""How long after the last row all must be delivered or parked."""
TOPICS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "-small": {"max.message.bytes": "300"},
    "-recent": {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
}
_DEFECT = re.compile(r"Traceback|has a defect|lane \d+ restarts|cannot lead|cannot begin to lead")


@dataclass
class Count:
    """What one trial did, in rows and seconds.

    Attributes:
        database: The database.
        delivery: The mode of delivery.
        rows: ``odd``, ``transforms`` (half of them go through transforms that do what they must not), or
            ``ordinary``, to compare with.
        seed: By which the rows were made.
        written: Odd rows that the database took.
        refused: Odd rows that it refused.
        gone: Odd rows that are not in the outbox any more.
        parked: Keys that are parked.
        waiting: Rows that are neither: they wait behind no parked key.
        lost: Odd rows that are gone, and of which nothing arrived (without transforms).
        repeats: Messages of keys that have one row only, and arrived before (without transforms).
        took: Seconds from the last row to the last that was delivered or parked.
        slowest: The greatest delay of an ordinary record: from its commit to a reader of committed messages.
        slow: Ordinary records that took more than a second.
        usual: The median of these delays.
        missing: Ordinary records that never arrived.
        ended: Lines of the log that say that something has ended.
        running: Whether the process runs.
        reasons: Why keys are parked, the most frequent ones.
    """

    database: str
    delivery: str
    rows: str
    seed: int
    written: int = 0
    refused: int = 0
    gone: int = 0
    parked: int = 0
    waiting: int = 0
    lost: list[str] = field(default_factory=list)
    repeats: int = 0
    took: float = 0.0
    slowest: float = 0.0
    slow: int = 0
    usual: float = 0.0
    missing: int = 0
    ended: list[str] = field(default_factory=list)
    running: bool = False
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def faults(self) -> dict[str, object]:
        """What must not be, if there is any."""
        found = {"waiting": self.waiting, "lost": self.lost, "missing": self.missing, "ended": self.ended}
        return {name: each for name, each in (found | {"over": not self.running}).items() if each}


class Arrivals:
    """Notes when each ordinary record arrives, as a reader of committed messages sees it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "odd", "isolation.level": "read_committed"}
        self.times: dict[str, float] = {}
        self._consumer = Consumer({**settings, "fetch.wait.max.ms": 20})
        self._consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in range(PARTITIONS)])
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None and (message.key() or b"").startswith(b"sound "):
                    self.times.setdefault((message.value() or b"").decode(), time.monotonic())


def trial(  # noqa: PLR0917 - what a trial is made of
    folder: Path,
    kafka: Kafka,
    database: Database,
    count: Count,
    rows: int,
    at_once: int,
    topic: str,
    settle: float = SETTLE_SECONDS,
) -> Count:
    """Writes rows while a harvester delivers them; returns what that did.

    Args:
        folder: For files.
        kafka: The broker.
        database: An empty database.
        count: The trial.
        rows: How many odd rows.
        at_once: Odd rows in each tick.
        topic: The topic.
        settle: How long to wait after the last row.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    keeping = {"retention.ms": "-1"}  # also what has a time of long ago
    made = [
        NewTopic(f"{topic}{name}", PARTITIONS, 1, config=keeping | dict(more))
        for name, more in TOPICS.items()
    ]
    for future in admin.create_topics(made).values():
        future.result(60)
    with (
        closing(_start(folder, kafka, database, count)) as harvester,
        closing(Arrivals(kafka.bootstrap, topic)) as arrivals,
    ):
        harvester.wait_for("leader acquired", 120)
        time.sleep(1.0)
        with closing(Writer(database)) as writer, closing(Writer(database)) as other:
            committed = _write(writer, other, _rows(database.driver, count, rows, topic), at_once, topic)
        count.written, count.refused = len(writer.written), writer.refused
        begun = time.monotonic()
        try:
            until(lambda: not (harvester.running and waiting(database)), "all is over", settle, pause=0.5)
            until(lambda: committed.keys() <= arrivals.times.keys(), "all is read", 60)
        except AssertionError:
            pass  # the count tells it
        count.waiting = len(waiting(database))
        count.took = round(time.monotonic() - begun, 1)
        _enter(count, committed, arrivals.times)
        letters = database.fetch("SELECT reason FROM outbox_dead_letters")
        count.parked = len(letters)
        count.reasons = dict(Counter(_general(reason) for (reason,) in letters).most_common(30))
        count.ended = [line.text[:300] for line in harvester.lines() if _DEFECT.search(line.text)][:5]
        count.running = harvester.running
    key = "CAST(kafka_key AS BLOB)" if database.driver == "sqlite" else "kafka_key"
    left = database.fetch(f"SELECT {key} FROM outbox")
    count.gone = count.written - len(left)
    if count.rows != "transforms":
        arrived = Counter(_number(key) for key in _read(kafka, admin, topic))
        kept = {_number(key) for (key,) in left}
        written = {_number(row["kafka_key"]) for row in writer.written}
        lost = written - kept - arrived.keys() - {None}
        count.lost = [str(row)[:300] for row in writer.written if _number(row["kafka_key"]) in lost]
        count.repeats = sum(times - 1 for number, times in arrived.items() if number is not None)
    return count


def _rows(driver: str, count: Count, rows: int, topic: str) -> Iterator[dict[str, object]]:
    if count.rows == "ordinary":
        return (
            {"kafka_topic": topic, "kafka_key": f"#{number}", "kafka_value": "v"} for number in range(rows)
        )
    chance = random.Random(count.seed)
    return OddRows(driver, topic, chance, transforms=count.rows == "transforms").rows(rows)


def _write(
    writer: Writer, other: Writer, rows: Iterator[dict[str, object]], at_once: int, topic: str
) -> dict[str, float]:
    """Writes rows, and one of the ordinary ones in each tick; returns when each of these was committed."""
    committed: dict[str, float] = {}
    due = time.monotonic()
    while some := list(islice(rows, at_once)):
        writer.write(some)
        value = f"s{len(committed)}"
        key = f"sound {len(committed) % 50}"
        other.write([{"kafka_topic": topic, "kafka_key": key, "kafka_value": value}])
        committed[value] = time.monotonic()
        due = max(due + TICK_SECONDS, time.monotonic() - 1)
        time.sleep(max(0.0, due - time.monotonic()))
    assert not other.refused
    return committed


def _start(folder: Path, kafka: Kafka, database: Database, count: Count) -> Harvester:
    harvest = {
        "name": "odd",
        "baseKafkaConfig": {"bootstrap.servers": kafka.bootstrap},
        "producerKafkaConfig": {"delivery.timeout.ms": 60_000},
        "dialect": {"driver": database.driver, "intake": INTAKE},
        "dataSource": database.dsn,
        "elector": "static",
        "engine": "inline",
        "delivery": count.delivery,
        "failures": {"mostParkedKeys": 100_000},
        "limits": {"sendConcurrency": 2, "minMetricsInterval": "1s"},
    }
    settings = folder / "outbox.yaml"
    settings.write_text(json.dumps({"harvest": harvest}))
    create_source(database)
    outbox(settings, "init")
    permit_nulls(database)
    environment = {}
    if count.rows == "transforms":
        settings.write_text(json.dumps({"harvest": harvest | {"transform": ["odd"]}}))
        environment = {"PYTHONPATH": str(installed(folder, "odd", Path(odd_transform.__file__).read_text()))}
    return Harvester("odd", settings, environment=environment)


def installed(folder: Path, name: str, plugin: str) -> Path:
    """Makes a folder in which a plugin is installed."""
    (folder / f"outbox_{name}_test.py").write_text(plugin)
    info = folder / f"outbox_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: outbox-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[outbox]\n{name} = outbox_{name}_test\n")
    return folder


def waiting(database: Database) -> Sequence[Any]:
    """Returns the ids of rows whose keys are not parked."""
    theirs, own = {
        "postgres": ("COALESCE(d.kafka_key, '')", "COALESCE(o.kafka_key, '')"),
        "mysql": ("COALESCE(d.kafka_key, '')", "CONVERT(COALESCE(o.kafka_key, '') USING utf8mb4)"),
        "sqlite": ("HEX(d.kafka_key)", "HEX(o.kafka_key)"),
    }[database.driver]
    parked = "(SELECT {} FROM outbox_dead_letters d WHERE d.status = 'parked')"
    # Most are heads; of the others, of which few remain, all keys are compared.
    others = f"SELECT * FROM outbox WHERE id NOT IN {parked.format('d.id')}"
    return database.fetch(f"SELECT id FROM ({others}) o WHERE {own} NOT IN {parked.format(theirs)}")


def _number(key: object) -> int | None:
    text = key if isinstance(key, bytes) else str(key).encode(errors="replace")
    found = re.search(rb"#(\d+)$", text)
    return int(found[1]) if found else None


def _read(kafka: Kafka, admin: AdminClient, topic: str) -> Iterator[bytes]:
    """Yields the keys of the messages of all topics."""
    for name, found in admin.list_topics(timeout=60).topics.items():
        if not name.startswith(topic):
            continue
        for message in messages(kafka.bootstrap, name, ends(admin, name, len(found.partitions))):
            yield message.key() or b""


def _enter(count: Count, committed: Mapping[str, float], times: Mapping[str, float]) -> None:
    delays = [times[value] - at for value, at in committed.items() if value in times]
    count.missing = len(committed) - len(delays)
    count.slowest = round(max(delays, default=0.0), 2)
    count.usual = round(statistics.median(delays or [0.0]), 3)
    count.slow = sum(delay > 1 for delay in delays)


def _general(reason: object) -> str:
    """Returns a reason without what differs from row to row."""
    text = re.sub(r"'[^']*'|[0-9][0-9,]*", "…", str(reason))
    return "".join(each if each.isprintable() else "?" for each in text)[:90]


@contextmanager
def server(name: str, folder: Path) -> Iterator[Database]:
    """Yields an empty database of a server of its own."""
    if name == "sqlite":
        file = folder / "shop.db"
        file.touch()
        yield Sqlite(str(file))
        return
    kinds = {"postgres": PostgresServer, "mysql": MySqlServer, "mariadb": MariaDbServer}
    with kinds[name]() as running:
        made = (Postgres if name == "postgres" else MySql)(running.create_database("shop"))
        yield made
        made.fence.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs trials; prints each as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--delivery", choices=DELIVERIES, action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS)
    parser.add_argument("--logs", type=Path, default=None)
    options = parser.parse_args(arguments)
    faults = 0
    with KafkaBroker(auto_create_topics=False) as kafka:
        for name in options.database or DATABASES:
            for delivery in options.delivery or DELIVERIES:
                for kind in options.kind or KINDS:
                    seed = random.randrange(10**6) if options.seed is None else options.seed
                    count = Count(name, delivery, kind, seed)
                    topic = f"odd-{name}-{delivery}-{kind}-{int(time.time())}"
                    numbers = options.rows, options.at_once, topic, options.settle
                    with tempfile.TemporaryDirectory(prefix="odd-") as made:
                        folder = Path(made)
                        with server(name, folder) as database:
                            trial(folder, kafka, database, count, *numbers)
                        if options.logs:
                            shutil.copy(folder / "odd.log", options.logs / f"{topic}.log")
                    sys.stdout.write(json.dumps(asdict(count)) + "\n")
                    sys.stdout.flush()
                    faults += bool(count.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
