"""Kills a Spark application that publishes into Kafka, again and again, and counts what is there.

In plugins/spark: ``python -m tests.sink_kills --rows 1000000 --kills 20``. With ``--source outbox`` it reads
an outbox of PostgreSQL, which is written meanwhile; with ``--cluster`` it runs on a master and two workers,
of which everything is killed; with ``--restarts 2`` the broker is, too; with ``--format kafka`` it is Spark's
own sink.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outbox_kafka.topics import create_missing
from outbox_servers.services import KafkaBroker, PostgresServer, SparkStandalone
from outbox_spark.application import JAVA_OPTIONS

from .sink_hits import Hit, Striker, hits
from .sink_jars import KAFKA, environment, jars_of, java_options
from .sink_tasks import messages
from .sink_trial import KEYS, SETTINGS, Application, Count, Outbox, created, writing

log = logging.getLogger(__name__)

TASKS = 8
PARTITIONS = 4
WORKERS = 2
BATCHES, BATCHES_ON_CLUSTER = 4, 12
"""How many batches there are for each hit; on a cluster the application goes on behind most hits."""
EACH, PAUSE = 1_000, 0.1
"""Rows of a transaction of the writer, and the seconds between two of them."""
ATTEMPTS = 5
"""How often an application may end by itself and have done nothing, one after another: a broker that is away
ends it, and on a busy machine Spark gives up on Python processes."""


class KillsApplication(Application):
    """The application of ``sink_kills_driver.py``."""

    module = "tests.sink_kills_driver"


def write_files(folder: Path, rows: int, files: int) -> None:
    folder.mkdir(parents=True)
    for number in range(files):
        numbers = range(number * rows // files, (number + 1) * rows // files)
        file = folder / f"{number:05}.json"
        file.write_text("".join(f'{{"id":{each}}}\n' for each in numbers))
        os.utime(file, (number, number))  # Spark takes them in this order


def count(bootstrap: str, topic: str, rows: int) -> Count:
    """Counts what a reader of committed messages finds; see :func:`.sink_trial.count`."""
    seen, latest, late, there = set[int](), dict[bytes | None, int](), 0, 0
    for key, value in messages(bootstrap, topic):
        number = int(value or b"")
        there += 1
        if number not in seen:
            late += number < latest.get(key, -1)
            latest[key] = max(number, latest.get(key, -1))
            seen.add(number)
    return Count(len(set(range(rows)) - seen), there - len(seen), late)


@dataclass
class Trial:
    """A query from numbers into a topic, and what is killed meanwhile.

    Attributes:
        bootstrap: The broker's address.
        folder: For the query's checkpoint, and the driver's log.
        rows: How many numbers.
        kills: How many times something of Spark is killed.
        restarts: How many times the broker is killed and started.
        form: The sink.
        outbox: Where the numbers are; in files if there is none.
        cluster: Where Spark runs; in the application's process if there is none.
        broker: The broker, if it may be killed.
        more: More settings of Spark.
    """

    bootstrap: str
    folder: Path
    rows: int
    kills: int
    restarts: int = 0
    form: str = "outbox-kafka"
    outbox: Outbox | None = None
    cluster: SparkStandalone | None = None
    broker: KafkaBroker | None = None
    more: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> Count:
        """Publishes all numbers, and counts them."""
        topic = f"kills-{uuid.uuid4().hex}"
        create_missing({"bootstrap.servers": self.bootstrap}, [topic], PARTITIONS)
        task = self._task(topic)
        commits = self.folder / "checkpoint" / "commits"
        watched = topic if self.form == "kafka" else None
        striker = Striker(self.bootstrap, commits, self.cluster, self.broker, watched)
        planned = hits(self.kills, self.restarts, BATCHES, cluster=self.cluster is not None)
        with self._writing():
            self._drain(task, striker, planned)
        while self.outbox and self.outbox.waiting():
            self._drain(task, striker, ())
        log.info("%d kills; %d hits inside a commit", striker.done, striker.inside)
        return count(self.bootstrap, topic, self.rows)

    def _task(self, topic: str) -> dict[str, Any]:
        each = BATCHES if self.cluster is None else BATCHES_ON_CLUSTER
        batches = each * (self.kills + self.restarts + 1)
        outbox: dict[str, str] | None = None
        if self.outbox is None:
            write_files(self.folder / "source", self.rows, batches)
        else:
            outbox = {**self.outbox.options, "maxRecordsPerTrigger": str(self.rows // batches)}
        return {
            "source": str(self.folder / "source"),
            "outbox": outbox,
            "checkpoint": str(self.folder / "checkpoint"),
            "options": {"kafka.bootstrap.servers": self.bootstrap, "topic": topic},
            "format": self.form,
            "tasks": TASKS,
            "files": 1,
            "keys": KEYS,
        }

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Writes the outbox, if there is one: a part at once, the rest meanwhile."""
        if self.outbox is None:
            yield
            return
        begun = self.rows // 10
        self.outbox.stash(range(begun))
        with writing([self.outbox], begun, self.rows, EACH, PAUSE):
            yield

    def _drain(self, task: Mapping[str, Any], striker: Striker, planned: Sequence[Hit]) -> None:
        """Starts the application until all hits were made and it has ended well by itself."""
        rest, failures, code = list(planned), 0, None
        while rest or code != 0:
            before = striker.committed()
            with self._application(task) as application:
                application.wait_until_ready()
                while rest and application.ended(0) is None:
                    if striker.strike(application, rest[0]):
                        rest.pop(0)
                code = application.ended(None)
            log.info("behind %d batches: the application ended with %s", striker.committed(), code)
            in_vain = code is not None and code >= 0 and striker.committed() == before
            failures = failures + 1 if in_vain else 0
            if failures > ATTEMPTS:
                raise AssertionError((self.folder / "driver.log").read_text(errors="replace")[-3000:])

    def _application(self, task: Mapping[str, Any]) -> KillsApplication:
        settings = {**SETTINGS, "spark.driver.extraJavaOptions": java_options()}
        variables = environment()
        if self.cluster is not None:
            settings |= {"spark.master": self.cluster.master_url, "spark.executor.memory": "512m"}
            settings["spark.executor.extraJavaOptions"] = JAVA_OPTIONS
            settings["spark.executorEnv.PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
            variables = {**self.cluster.environment(), **variables}
        if self.form == "kafka":
            settings["spark.jars"] = jars_of(KAFKA)
        settings |= self.more
        return KillsApplication((), settings, variables, self.folder / "driver.log", **task)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="of a running broker; one is started if left out")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=0, help="of the broker that is started")
    parser.add_argument("--source", choices=("files", "outbox"), default="files")
    parser.add_argument("--cluster", action="store_true", help="a master and two workers")
    parser.add_argument("--format", choices=("outbox-kafka", "kafka"), default="outbox-kafka")
    parser.add_argument("--folder", type=Path, help="kept; a temporary one if left out")
    parser.add_argument("--settings", type=json.loads, default={}, help="more settings of Spark, as JSON")
    options = parser.parse_args()
    if options.restarts and options.bootstrap:
        parser.error("a broker that runs already is not killed: leave --bootstrap out")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    folder: Path = (options.folder or Path(tempfile.mkdtemp(prefix="sink-kills-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        trial = Trial(
            options.bootstrap or "", folder, options.rows, options.kills, options.restarts, options.format
        )
        if not options.bootstrap:
            trial.broker = stack.enter_context(KafkaBroker(folder=folder / "broker"))
            trial.bootstrap = trial.broker.bootstrap
        if options.source == "outbox":
            trial.outbox = created(stack.enter_context(PostgresServer()).dsn)
        if options.cluster:
            cluster = SparkStandalone(workers=WORKERS, cores=TASKS // WORKERS)
            trial.cluster = stack.enter_context(cluster)
        trial.more = options.settings
        began = time.monotonic()
        found = trial.run()
    took = time.monotonic() - began
    what = f"{options.source} into {options.format}, {options.rows} rows, {options.kills} kills"
    print(f"{what}, {options.restarts} restarts of the broker: {found} in {took:.0f} s")  # noqa: T201 - a program's result


if __name__ == "__main__":
    main()
