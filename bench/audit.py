"""Audits many records with twelve seeded anomalies by both engines, and on a Spark cluster of three workers.

Writes a topic and its ledger, which are the same for all. The numbers of a key have gaps, as those of
``outbox pump`` have: each record has the next number, whatever its key. Prints for each engine how many of
the anomalies it has named, the time that passed and that its processes computed; and their peak memory, as
bench/memory.py measures it: of master and workers, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from environment import BROKER_JVM
from memory import Peak
from outbox_servers.services import KafkaBroker, SparkStandalone

TOPIC = "orders"
PARTITIONS = 8
KINDS = ("lost", "foreign", "overtaken", "reappeared", "duplicates", "lost")
"""What happens to records: each twice, so that there are twelve anomalies."""
WORKERS = 3


@dataclass(frozen=True)
class Trial:
    """What is audited.

    Attributes:
        folder: Where its files are.
        bootstrap: The broker.
        records: How many were committed.
        keys: How many different keys there are; a record's is told by its number.
        seeded: Number of a record → what happens to it.
    """

    folder: Path
    bootstrap: str
    records: int
    keys: int
    seeded: Mapping[int, str]

    @property
    def ledger(self) -> Path:
        """The file."""
        return self.folder / "ledger.jsonl"

    def arrivals(self) -> Iterator[int]:
        """Yields the numbers of the messages, in order; those of foreign ones are not in the ledger."""
        late: dict[int, list[int]] = {}
        for number in range(self.records):
            kind = self.seeded.get(number)
            if kind not in {"lost", "overtaken"}:
                yield number
            if kind == "duplicates":
                yield number
            elif kind == "foreign":
                yield number + self.records * self.keys
            elif kind in {"overtaken", "reappeared"}:
                late[number + self.keys] = [number]  # behind the next of its key
            yield from late.pop(number, ())

    def key(self, number: int) -> int:
        """Returns the number of a record's key."""
        return number * 7919 % self.keys

    def settings(self, engine: Mapping[str, object] | str) -> Path:
        """Writes the configuration."""
        path = self.folder / "outbox.yaml"
        harvest = {
            "baseKafkaConfig": {"bootstrap.servers": self.bootstrap},
            "dataSource": "dbname=none",
            "elector": "static",
            "engine": engine,
        }
        path.write_text(json.dumps({"harvest": harvest}))
        return path

    def expected(self) -> list[list[object]]:
        """Returns defect, key and number of each anomaly that an audit must name."""
        foreign = self.records * self.keys
        return [
            [kind, f"key-{self.key(number)}", number + foreign * (kind == "foreign")]
            for number, kind in self.seeded.items()
        ]


def seeds(records: int) -> dict[int, str]:
    """Spreads the anomalies evenly, away from the end."""
    return {
        records * (at + 1) // (2 * len(KINDS) + 2): KINDS[at % len(KINDS)] for at in range(2 * len(KINDS))
    }


def write(trial: Trial) -> None:
    """Writes ledger and topic."""
    with trial.ledger.open("w") as ledger:
        ledger.writelines(
            f'["key-{trial.key(number)}", {number}, "{TOPIC}"]\n' for number in range(trial.records)
        )
    admin = AdminClient({"bootstrap.servers": trial.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()
    producer = Producer(
        {
            "bootstrap.servers": trial.bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 50,
        }
    )
    for number in trial.arrivals():
        key = trial.key(number)
        message = {
            "key": b"key-%d" % key,
            "headers": [("Seq", b"%d" % number)],
            "partition": key % PARTITIONS,
        }
        while True:
            try:
                producer.produce(TOPIC, b"", **message)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def audit(
    trial: Trial, name: str, options: Sequence[str] = (), cluster: SparkStandalone | None = None
) -> None:
    """Runs one audit, and prints what it found and took."""
    engine: Mapping[str, object] | str = "inline"
    more = {}
    if cluster is not None:  # for this run alone, on 127.0.0.1
        settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "1g"}
        engine = {"driver": "spark", "settings": settings}
        options = [*options, "--master", cluster.master_url]
        more = {"master": cluster.master.pid} | {
            f"worker {number}": worker.pid for number, worker in enumerate(cluster.workers, 1)
        }
    command = [sys.executable, "-m", "outbox_core", "audit", "-f", str(trial.settings(engine)), "--json"]
    command += ["--ledger", str(trial.ledger), *options]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peaks = {what: Peak(pid, what) for what, pid in ({"audit": process.pid} | more).items()}
        told = process.communicate()[0]
        seconds = time.monotonic() - began
        for peak in peaks.values():
            peak.stop()
    if not told:
        sys.exit(f"{name}: the audit ended with {process.returncode}")
    [found] = json.loads(told)["audits"]
    named = [[defect, *each] for defect, some in found["examples"].items() for each in some]
    hits = sum(each in named for each in trial.expected())
    counts = ", ".join(f"{found[kind]} {kind}" for kind in dict.fromkeys(KINDS))
    print(f"{name}: {hits} of {len(trial.seeded)} anomalies named ({counts}), {found['sent']:,} records")
    processor = sum(peak.processor_seconds for peak in peaks.values())
    print(f"  {seconds:.0f} s, {processor:.0f} s of processors; peak memory", flush=True)
    for what, peak in peaks.items():
        print(f"    {what}: {peak}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=10_007, help="not a multiple of 7919")
    parser.add_argument("--engines", nargs="*", default=["spark", "cluster", "local"])
    arguments = parser.parse_args()
    properties = {"log.segment.bytes": str(1 << 30)}
    with (
        KafkaBroker(jvm_options=BROKER_JVM, properties=properties) as kafka,
        tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder,
    ):
        seeded = seeds(arguments.records)
        trial = Trial(Path(folder), kafka.bootstrap, arguments.records, arguments.keys, seeded)
        began = time.monotonic()
        write(trial)
        print(f"{arguments.records:,} records written in {time.monotonic() - began:.0f} s", flush=True)
        on_spark = ["--engine", "spark"]
        if "spark" in arguments.engines:
            audit(trial, "spark, local[*]", [*on_spark, "--anomalies", f"{folder}/anomalies"])
        if "cluster" in arguments.engines:
            with SparkStandalone(workers=WORKERS, cores=1, memory="1g") as cluster:
                audit(trial, f"spark, {WORKERS} workers", on_spark, cluster)
        if "local" in arguments.engines:
            audit(trial, "local")


if __name__ == "__main__":
    main()
