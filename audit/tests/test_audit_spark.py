"""The audit as a job of Spark: the same results as in one process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    NewTopic,
)
from outbox_api import DriverError, OutboxError
from outbox_audit import Audit, Defect, Isolation, Result, compare
from outbox_audit.audit import EXAMPLES
from outbox_core.cli.command import ExitCode

pytestmark = [pytest.mark.spark, pytest.mark.slow("demo")]

GROUPS = 400
Record = tuple[str, int]
Message = tuple[str, int | None, int, int, int]
"""Key, sequence, topic, partition and offset."""


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from outbox_audit.spark import spark  # noqa: PLC0415 - not without Arrow
    from pyspark.sql import SparkSession  # noqa: PLC0415

    with spark("local[2]", {"spark.sql.shuffle.partitions": "4"}) as made:
        yield made
        SparkSession._instantiatedSession = None


class Case(NamedTuple):
    """An input of an audit."""

    committed: list[Record]
    messages: list[Message]


def drawn(source: random.Random) -> Case:
    """Returns a few records, and their messages after a delivery with random defects."""
    keys = ["", "a", "ä", "𝄞", "\uffff"][: source.randint(1, 5)]
    committed = [(key, n) for key in keys for n in source.sample(range(-3, 12), source.randint(0, 8))]
    arrived: list[tuple[str, int | None]] = [*sorted(committed, key=lambda record: record[1])]
    for _ in range(source.randint(0, 6)):
        at = source.randint(0, len(arrived))
        match source.randint(0, 3):
            case 0 if arrived:
                arrived.pop(at - 1)
            case 1 if arrived:
                arrived.insert(at, source.choice(arrived))
            case 2 if arrived:
                arrived.insert(at, arrived.pop(source.randrange(len(arrived))))
            case _:
                arrived.insert(at, (source.choice([*keys, "x"]), source.choice([None, *range(-3, 12)])))
    places = sorted(source.sample(range(300), len(arrived)))
    # As if topics and partitions were digits: the order of messages is that of the places.
    messages = [(*each, at // 100, at // 50 % 2, at % 50) for each, at in zip(arrived, places, strict=True)]
    source.shuffle(committed)
    return Case(committed, messages)


def judged(case: Case) -> Result:
    audit = Audit()
    for record in case.committed:
        audit.committed(*record)
    for key, sequence, *_ in sorted(case.messages, key=lambda message: message[2:]):
        audit.arrived(key, sequence)
    return audit.result()


def in_order(result: Result, case: Case) -> Result:
    """Returns a result whose lost records are in the order of Spark's."""
    delivered = {(key, sequence) for key, sequence, *_ in case.messages}
    lost = sorted(record for record in case.committed if record not in delivered)[:EXAMPLES]
    return replace(result, examples={**result.examples, Defect.LOST: tuple(lost)})


def test_all_that_an_audit_finds_is_found_alike(session: Any):
    """Many audits in one job, each with defects drawn at random."""
    from outbox_audit.spark.findings import ROWS, find, judge  # noqa: PLC0415 - not without Arrow

    source = random.Random(59)
    cases = [drawn(source) for _ in range(GROUPS)]
    rows = [
        row
        for audit, case in enumerate(cases)
        for row in (
            *((audit, *record, None, None, None) for record in case.committed),
            *((audit, *message) for message in case.messages),
        )
    ]
    source.shuffle(rows)
    expected = [in_order(judged(case), case) for case in cases]
    assert all(any(each.examples[defect] for each in expected) for defect in Defect)
    assert judge(find(session.createDataFrame(rows, ROWS)).persist(), GROUPS, "l") == expected


def written(path: Path, lines: Iterable[object]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def publish(bootstrap: str, topic: str, messages: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
    """Writes messages (partition, key, number); every third also thrice in an aborted transaction."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for count, (partition, key, number) in enumerate(messages):
        for finish in [*[producer.abort_transaction] * (count % 3 == 0), producer.commit_transaction]:
            producer.begin_transaction()
            for _ in range(1 if finish == producer.commit_transaction else 3):
                producer.produce(topic, b"", key, headers=[("Seq", number)], partition=partition)
            producer.flush()
            finish()


def test_ledger_and_topics_are_compared_alike(
    session: Any, tmp_path: Path, kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
):
    """Topics in pieces of a few offsets, some without messages; the ledger as lines and as a table."""
    from outbox_audit import spark  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415 - not without Arrow

    kafka = {"bootstrap.servers": kafka_bootstrap}
    orders, payments, empty = (f"{topic}.{name}" for name in ("orders", "payments", "empty"))
    numbers = [1, 0, 2, 2, 3, 1, 7, 3, 1234567890123456789]
    publish(kafka_bootstrap, orders, [(0, b"a", b"%d" % number) for number in numbers])
    others = [(1, None, b"5"), (0, "ä".encode(), b" 4 "), (1, b"\xff", None), (1, b"", b"four")]
    publish(kafka_bootstrap, payments, others)
    publish(kafka_bootstrap, empty, [])
    lines = [
        *(["a", number, orders] for number in (4, 3, 2, 1, 0)),
        *(["", 5, payments], ["ä", 4, payments], ["a", 1, payments], ["a", 0, empty]),
    ]
    ledger = written(tmp_path / "ledger", lines)
    anomalies = tmp_path / "anomalies"
    monkeypatch.setattr("outbox_audit.spark.sources.STRETCH", 3)
    expected = compare(ledger, (), kafka)
    read: list[int] = []
    assert spark.compare(session, str(ledger), (), kafka, progress=read.append) == expected
    assert sum(read) == len(lines) + len(numbers) + len(others)

    table = tmp_path / "table"
    session.createDataFrame(lines, "key string, sequence int, topic string").write.parquet(str(table))
    found = spark.compare(session, str(table), [orders], kafka, anomalies=str(anomalies))
    assert found == compare(ledger, [orders], kafka)
    wrong = parquet.read_table(anomalies).to_pylist()
    assert {each["topic"] for each in wrong} == {orders}
    result = found[0].result
    for defect, count in ((each, getattr(result, each)) for each in Defect):
        assert count > 0
        named = [(each["key"], each["sequence"]) for each in wrong if each["defect"] == defect]
        assert len(named) == count
        assert set(result.examples[defect]) == set(named)
    assert {each["offset"] for each in wrong if each["defect"] == Defect.LOST} == {None}
    with pytest.raises(OutboxError, match="anomalies' exists: name a new folder"):
        spark.compare(session, str(table), (), kafka, anomalies=str(anomalies))

    unnamed = written(tmp_path / "unnamed", [["a", 0], ["", 5], ["ä", 4]])
    for isolation in Isolation:
        found = spark.compare(session, str(unnamed), [payments, empty], kafka, isolation=isolation)
        assert found == compare(unnamed, [payments, empty], kafka, isolation=isolation)


@pytest.mark.parametrize(
    ("lines", "topics"),
    [
        ([["a", 0]], []),
        ([], []),
        ([["a", 0, "x"], ["a", 1]], []),
        ([["a", 0, "x"]], ["y"]),
        ([["a", 0, "x"], ["a", True, "x"]], []),
        ([["a", 0, "x"], {"a": 0}], []),
    ],
)
def test_a_ledger_that_cannot_be_used_is_refused_alike(
    session: Any, tmp_path: Path, lines: list[object], topics: list[str]
):
    from outbox_audit import spark  # noqa: PLC0415 - not without Arrow

    ledger = written(tmp_path / "ledger", lines)
    with pytest.raises(OutboxError) as local:
        compare(ledger, topics, {})
    with pytest.raises(OutboxError) as refused:
        spark.compare(session, str(ledger), topics, {})
    assert str(refused.value) == str(local.value)


def test_what_no_job_can_compare(session: Any, tmp_path: Path, kafka_bootstrap: str, topic: str):
    from outbox_audit import spark  # noqa: PLC0415 - not without Arrow

    def refused(ledger: Path) -> str:
        with pytest.raises(OutboxError) as error:
            spark.compare(session, str(ledger), (), {"bootstrap.servers": kafka_bootstrap})
        return str(error.value)

    assert "cannot read ledger" in refused(tmp_path / "no")
    assert "with numbers of 64 bits" in refused(written(tmp_path / "long", [["a", 1 << 63, topic]]))
    assert "with numbers of 64 bits" in refused(written(tmp_path / "half", [["\ud800", 1, topic]]))
    table = tmp_path / "table"
    session.createDataFrame([("a", "1")], "key string, number string").write.parquet(str(table))
    assert "expected the columns key string, sequence bigint, topic string" in refused(table)
    session.createDataFrame([(None, 1)], "key string, sequence int").write.mode("overwrite").parquet(
        str(table)
    )
    assert refused(table).endswith("a record has no key or no sequence")
    publish(kafka_bootstrap, topic, [(0, b"a", b"0")])
    twice = written(tmp_path / "twice", [["a", 0, topic], ["a", 1, topic], ["a", 0, topic]])
    assert refused(twice) == f"ledger {twice}: key 'a': sequence 0 was committed twice"
    absent = written(tmp_path / "absent", [["a", 0, f"{topic}.absent"]])
    kafka = {"bootstrap.servers": kafka_bootstrap, "allow.auto.create.topics": False}
    with pytest.raises(DriverError, match="Unknown topic"):
        spark.compare(session, str(absent), (), kafka)


def command(file: Path, *options: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    """Runs ``outbox audit`` in a process of its own, as there is one Spark in each."""
    program = f"import sys; {before}; from outbox_core.cli import main; main()"
    words = [sys.executable, "-c", program, "audit", "-f", str(file), *options]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=450)


def configured(folder: Path, kafka: dict[str, str], engine: object = "inline") -> Path:
    harvest = {"baseKafkaConfig": kafka, "dataSource": "dbname=none", "elector": "static", "engine": engine}
    file = folder / "outbox.yaml"
    file.write_text(json.dumps({"harvest": harvest}))
    return file


def test_a_library_that_is_missing_is_named(tmp_path: Path):
    file = configured(tmp_path, {"bootstrap.servers": "127.0.0.1:1"})
    options = ("--ledger", str(tmp_path / "ledger"))
    done = command(file, *options, "--engine", "spark", before="sys.modules['pyarrow'] = None")
    assert done.returncode == ExitCode.CONFIG
    assert "pyarrow is not installed" in done.stderr
    assert "'outbox-audit[spark]'" in done.stderr
    done = command(file, *options, "--master", "local[2]")
    assert done.returncode == ExitCode.USAGE
    assert "is an option of --engine spark" in done.stderr


def test_the_command_prints_the_same(tmp_path: Path, kafka_bootstrap: str, topic: str):
    """And shows nothing of the broker's password to who may read Spark's event log."""
    publish(kafka_bootstrap, topic, [(0, b"a", b"%d" % number) for number in (0, 2, 1, 1)])
    ledger = written(tmp_path / "ledger", [["a", number, topic] for number in range(4)])
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    kafka = {"bootstrap.servers": kafka_bootstrap, "sasl.password": "Hush-Hush-4711"}
    file = configured(tmp_path, kafka, {"driver": "spark", "settings": settings})
    options = ("--ledger", str(ledger))
    local = command(file, *options)
    spark = command(file, *options, "--engine", "spark", "--master", "local[2]")
    assert local.returncode == spark.returncode == ExitCode.FAILED
    assert spark.stdout == local.stdout
    assert "overtaken" in spark.stdout
    [log] = [path for path in events.rglob("*") if path.is_file() and path.stat().st_size > 10_000]
    assert topic not in spark.stderr
    assert "Hush-Hush" not in log.read_text() + spark.stdout + spark.stderr


def test_an_open_transaction_ends_the_command(tmp_path: Path, kafka_bootstrap: str, topic: str):
    publish(kafka_bootstrap, topic, [(0, b"a", b"0")])
    patience = {"transaction.timeout.ms": 600_000}  # longer than Spark may take to start
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": topic, **patience})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"", b"a", headers=[("Seq", b"1")], partition=0)
    producer.flush()
    ledger = written(tmp_path / "ledger", [["a", 0, topic], ["a", 1, topic]])
    file = configured(tmp_path, {"bootstrap.servers": kafka_bootstrap})
    done = command(file, "--ledger", str(ledger), "--engine", "spark", "--master", "local[1]")
    producer.abort_transaction()
    assert done.returncode == ExitCode.UNAVAILABLE
    assert "is a transaction still open?" in done.stderr
