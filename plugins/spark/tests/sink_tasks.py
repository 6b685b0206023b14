"""Tasks and drivers of the sink ``outbox-kafka`` without Spark, and what a topic has in the end.

``python -m tests.sink_tasks`` runs a task in a process of its own, which it reads from standard input.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import confluent_kafka as kafka
from confluent_kafka import Consumer, KafkaError, TopicPartition
from outbox_api import MarkedRecord
from pyspark_outbox_kafka.driver import end_batch
from pyspark_outbox_kafka.ledger import Part, Report
from pyspark_outbox_kafka.log import SinkLog
from pyspark_outbox_kafka.options import read_options
from pyspark_outbox_kafka.task import SinkTask

Message = tuple[bytes | None, bytes | None]
"""A key and a value."""


@dataclass(frozen=True)
class Query:
    """A run of a query that writes into a topic."""

    bootstrap: str
    topic: str
    query: str
    run: str = "run-1"
    name: str | None = None
    replaces: str | None = None
    timeout_ms: int | None = None

    def again(self, run: str) -> Query:
        return replace(self, run=run)

    @property
    def options(self) -> dict[str, str]:
        given = {"sinkName": self.name, "replacesQuery": self.replaces}
        if self.timeout_ms is not None:
            given["kafka.transaction.timeout.ms"] = str(self.timeout_ms)
            given["kafka.delivery.timeout.ms"] = str(self.timeout_ms - 1)
        chosen = {name: value for name, value in given.items() if value is not None}
        return {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, **chosen}

    def rows(self, numbers: Sequence[int]) -> Iterator[list[MarkedRecord]]:
        for number in numbers:
            yield [MarkedRecord(number, self.topic, b"k%d" % (number % 5), b"%d" % number)]  # type: ignore[arg-type]

    def task(self, batch: int, task: int, rows: Iterator[list[MarkedRecord]] | Sequence[int]) -> Report:
        """Runs one task on rows, or on those of numbers."""
        options = read_options(self.options)
        given = self.rows(rows) if isinstance(rows, Sequence) else rows
        sink = SinkLog(options, self.name or self.query)
        return SinkTask(sink, Part(self.query, self.run, batch, task), self.replaces).write(given)

    @contextmanager
    def process(self, batch: int, task: int, rows: Sequence[int]) -> Iterator[subprocess.Popen[bytes]]:
        """Runs one task in another process; kills it in the end."""
        given = {"query": asdict(self), "batch": batch, "task": task, "rows": list(rows)}
        command = [sys.executable, "-m", "tests.sink_tasks"]
        folder = Path(__file__).parents[1]
        with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE) as process:
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(given).encode())
                process.stdin.close()
                yield process
            finally:
                process.kill()

    def driver(self, reports: Sequence[Report]) -> None:
        end_batch(read_options(self.options), reports)

    def batch(self, batch: int, *tasks: Sequence[int]) -> list[Report]:
        """Runs a batch, one task after the other."""
        reports = [self.task(batch, number, rows) for number, rows in enumerate(tasks)]
        self.driver(reports)
        return reports


def consumed(bootstrap: str, topic: str) -> list[kafka.Message]:
    """Returns what a reader of committed messages finds in a topic, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=10).topics[topic]
        rest = set() if known.error else set(known.partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in rest])
        found = list[kafka.Message]()
        while rest:
            message = consumer.poll(10)
            assert message is not None, "the reader waits for a transaction"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                rest.discard(message.partition() or 0)
        return found
    finally:
        consumer.close()


def messages(bootstrap: str, topic: str) -> list[Message]:
    """Returns keys and values of the messages; see :func:`consumed`."""
    return [(each.key(), each.value()) for each in consumed(bootstrap, topic)]


def numbers(bootstrap: str, topic: str) -> list[int]:
    """Returns the numbers of the messages, in their order."""
    return [int(value or b"") for _, value in messages(bootstrap, topic)]


def main() -> None:
    given = json.load(sys.stdin)
    Query(**given["query"]).task(given["batch"], given["task"], given["rows"])


if __name__ == "__main__":
    main()
