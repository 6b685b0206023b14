"""What is killed while a Spark application publishes into Kafka, and when."""

from __future__ import annotations

import logging
import random
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from outbox_kafka.topics import ensure_checkpoint_topic
from outbox_servers.services import KafkaBroker, SparkStandalone
from pyspark_outbox_kafka.options import CHECKPOINT_TOPIC

from .sink_trial import Application

log = logging.getLogger(__name__)

COMMIT_SECONDS = 40.0
"""For so long a task may not commit: then the hit comes outside of a commit."""
EXECUTOR_SECONDS = 60.0
"""So long an executor may take to start."""


class Target(Enum):
    """What is killed with SIGKILL; all but the first need a cluster, or a broker of their own."""

    APPLICATION = "the application"
    """In a cluster that is the driver alone."""
    EXECUTORS = "all executors"
    EXECUTOR = "an executor"
    WORKER = "a worker with its executor"
    PYTHON = "a Python process of a task"
    BROKER = "the broker"


class Moment(Enum):
    """When it is killed."""

    FIRST = "in the next commit of a task"
    LATER = "in a commit of a task, a batch later"
    BEHIND = "behind a batch"
    ANY = "at any time"


INSIDE = (Moment.FIRST, Moment.LATER)


class Hit(NamedTuple):
    """What is killed, and when: not before so many batches are committed."""

    target: Target
    moment: Moment
    batches: int


def hits(kills: int, restarts: int, batches: int, *, cluster: bool) -> list[Hit]:
    """Returns so many kills of Spark, with restarts of the broker among them.

    Args:
        kills: How many times something of Spark is killed.
        restarts: How many times the broker is killed and started.
        batches: How many batches lie between two hits, at least; but a moment may be the next commit.
        cluster: Whether Spark runs on a cluster.
    """
    moments = tuple(Moment)
    # Five targets and four moments: after twenty kills each target was hit at each moment.
    targets = [each for each in Target if each is not Target.BROKER] if cluster else [Target.APPLICATION]
    made = [(targets[each % len(targets)], moments[each % len(moments)]) for each in range(kills)]
    for number in range(restarts, 0, -1):
        moment = moments[number % len(moments)]
        made.insert(number * len(made) // (restarts + 1), (Target.BROKER, moment))
    return [
        Hit(target, moment, 0 if moment is Moment.FIRST else number * batches)
        for number, (target, moment) in enumerate(made)
    ]


class Commits:
    """Watches the log of all sinks, to kill at the moment of a commit.

    Args:
        bootstrap: The broker's address.
        topic: The topic of a sink that has no log: to kill while records arrive.
    """

    def __init__(self, bootstrap: str, topic: str | None = None) -> None:
        settings = {"group.id": "watcher", "isolation.level": "read_uncommitted", "fetch.wait.max.ms": 5}
        self._has_log = topic is None
        topic = topic or ensure_checkpoint_topic({"bootstrap.servers": bootstrap}, CHECKPOINT_TOPIC).name
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
        known = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in known])

    def wait_for_one(self, seconds: float, kind: str = "published") -> bool:
        """Waits until a task has written its checkpoint, or that it has opened; it commits that next."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            if not self._has_log or (message.key() or b"").endswith(f":{kind}".encode()):
                return True
        return False

    def close(self) -> None:
        self._consumer.close()


@dataclass
class Striker:
    """Kills what a hit names; counts what it has hit, and how often inside a commit.

    Attributes:
        bootstrap: The broker's address.
        commits: The folder of the query's commit log.
        cluster: The cluster, if there is one.
        broker: The broker, if it may be killed.
        topic: The topic of a sink that has no log.
    """

    bootstrap: str
    commits: Path
    cluster: SparkStandalone | None = None
    broker: KafkaBroker | None = None
    topic: str | None = None
    done: int = field(default=0, init=False)
    inside: int = field(default=0, init=False)

    def strike(self, application: Application, hit: Hit) -> bool:
        """Waits for the moment, and kills; returns whether there was anything left to kill."""
        behind = self.committed() + (hit.moment in {Moment.LATER, Moment.BEHIND})
        while self.committed() < max(behind, hit.batches) and application.ended(0.5) is None:
            pass
        if hit.moment is not Moment.FIRST:
            time.sleep(random.uniform(5, 15) if hit.moment is Moment.ANY else random.uniform(0, 2))
        inside = False
        if hit.moment in INSIDE:
            with closing(Commits(self.bootstrap, self.topic)) as watched:
                inside = watched.wait_for_one(COMMIT_SECONDS)
                killed = application.ended(0) is None and self._kill(application, hit.target)
        else:
            killed = application.ended(0) is None and self._kill(application, hit.target)
        if killed:
            self.done += hit.target is not Target.BROKER
            self.inside += inside
            where = "inside a commit" if inside else "outside of commits"
            log.info("behind %d batches: killed %s, %s", self.committed(), hit.target.value, where)
        return killed

    def committed(self) -> int:
        """Returns how many batches Spark has committed; of old ones it deletes the files."""
        return max((int(each.name) + 1 for each in self.commits.glob("[0-9]*")), default=0)

    def _kill(self, application: Application, target: Target) -> bool:
        """Kills, and starts what nobody else starts; returns whether it was there."""
        if target is Target.APPLICATION:
            application.kill()
            return True
        if target in {Target.EXECUTORS, Target.EXECUTOR, Target.PYTHON}:
            return self.kill_processes(target)
        if target is Target.BROKER:
            assert self.broker is not None
            self.broker.kill()
            self.broker.start()
        else:
            assert self.cluster is not None
            worker = random.choice(self.cluster.workers)
            worker.kill()
            worker.start()
        return True

    def kill_processes(self, target: Target) -> bool:
        """Kills executors or a Python process; returns whether there was any."""
        until = time.monotonic() + EXECUTOR_SECONDS
        while not (found := self._processes(python=target is Target.PYTHON)):
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        for process in found if target is Target.EXECUTORS else [random.choice(found)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return True

    def _processes(self, *, python: bool) -> list[psutil.Process]:
        """Returns the executors, or the Python processes of their tasks."""
        assert self.cluster is not None
        wanted = "pyspark" if python else "CoarseGrainedExecutorBackend"
        found = list[psutil.Process]()
        for worker in self.cluster.workers:
            for each in psutil.Process(worker.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # it has ended, perhaps nobody has waited for it yet
                    if wanted in " ".join(each.cmdline()) and not (python and each.children()):
                        found.append(each)
        return found
