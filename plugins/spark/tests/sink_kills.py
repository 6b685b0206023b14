"""Kills a Spark application that publishes into Kafka, again and again, and counts what is there.

In plugins/spark: ``python -m tests.sink_kills --bootstrap localhost:9092 --rows 1000000 --kills 20``; with
``--format kafka`` it is Spark's own sink.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from .sink_jars import KAFKA, environment, jars_of, java_options
from .sink_tasks import messages
from .sink_trial import SETTINGS, Application, Count

log = logging.getLogger(__name__)

KEYS = 50
TASKS = 8
CHECKPOINTS = "outbox.spark.checkpoints"
ATTEMPTS = 3
"""How often the last application is started: on a busy machine Spark may give up on Python processes."""


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


class Commits:
    """Watches the log of a sink, to kill at the moment of a commit."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"group.id": "watcher", "isolation.level": "read_uncommitted", "fetch.wait.max.ms": 5}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
        known = self._consumer.list_topics(CHECKPOINTS, timeout=10).topics[CHECKPOINTS]
        places = [TopicPartition(CHECKPOINTS, number) for number in known.partitions]
        ends = [self._consumer.get_watermark_offsets(place)[1] for place in places]
        for place, end in zip(places, ends, strict=True):
            place.offset = end
        self._consumer.assign(places)

    def wait_for_one(self, seconds: float) -> bool:
        """Waits until a task has written its checkpoint, which it commits next."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self._consumer.poll(0.1)
            if message is not None and (message.key() or b"").endswith(b":published"):
                return True
        return False

    def close(self) -> None:
        self._consumer.close()


def kill(application: Application, bootstrap: str, commits: Path, kind: int) -> bool:
    """Kills the application; returns whether it was inside a commit.

    By kind: inside the first commit of a task, inside any, at a random moment behind a batch, or of all.
    """
    application.wait_until_ready()
    before, inside = len(list(commits.glob("[0-9]*"))), False
    if kind == 3:
        time.sleep(random.uniform(5, 15))
    elif kind != 0:
        for _ in range(60):
            if len(list(commits.glob("[0-9]*"))) > before or application.ended(1) is not None:
                break
        time.sleep(random.uniform(0, 2))
    if kind < 2:
        watched = Commits(bootstrap)
        inside = watched.wait_for_one(40)
        application.kill()
        watched.close()
    application.kill()
    return inside


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


def trial(
    bootstrap: str,
    folder: Path,
    rows: int,
    kills: int,
    form: str = "outbox-kafka",
    *,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Count:
    """Publishes numbers through so many kills, half of them inside a commit."""
    topic = f"kills-{uuid.uuid4().hex}"
    write_files(folder / "source", rows, 4 * (kills + 1))
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": java_options(), **more}
    if form == "kafka":
        settings["spark.jars"] = jars_of(KAFKA)
    task: dict[str, Any] = {
        "source": str(folder / "source"),
        "checkpoint": str(folder / "checkpoint"),
        "options": {"kafka.bootstrap.servers": bootstrap, "topic": topic},
        "format": form,
        "tasks": TASKS,
        "files": 1,
        "keys": KEYS,
    }
    inside = 0
    for number in range(kills):
        with KillsApplication((), settings, environment(), folder / "driver.log", **task) as application:
            kind = number % 4 if form != "kafka" else 2 + number % 2
            inside += kill(application, bootstrap, folder / "checkpoint" / "commits", kind)
    log.info("%d kills, %d of them inside a commit", kills, inside)
    for _ in range(ATTEMPTS):
        with KillsApplication((), settings, environment(), folder / "driver.log", **task) as application:
            if application.ended(None) == 0:
                return count(bootstrap, topic, rows)
    raise AssertionError((folder / "driver.log").read_text(errors="replace")[-3000:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--format", choices=("outbox-kafka", "kafka"), default="outbox-kafka")
    parser.add_argument("--folder", type=Path, help="kept; a temporary one if left out")
    parser.add_argument("--settings", type=json.loads, default={}, help="more settings of Spark, as JSON")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="sink-kills-"))
    began = time.monotonic()
    found = trial(
        options.bootstrap, folder, options.rows, options.kills, options.format, more=options.settings
    )
    took = time.monotonic() - began
    print(f"{options.format}, {options.rows} rows, {options.kills} kills: {found} in {took:.0f} s")  # noqa: T201 - a program's result


if __name__ == "__main__":
    main()
