"""The Spark engine: lanes as long-running tasks of a Spark application, embedded or on a cluster.

Each lane group is a Spark job of its own with one task, which runs the lanes until the term is over and
yields Arrow batches of receipts meanwhile. One job for each group, because a lost worker then takes no other
group with it; no micro-batches, because starting one takes longer than moving a thousand records.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pyarrow
from outbox_sdk import OutboxError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from outbox_core.config.settings import EngineSettings
from outbox_core.group import LaneGroup
from outbox_core.java import CURE, java_home
from outbox_core.lane import Plan
from outbox_core.link import LinkServer, RemoteLink
from outbox_core.term import Term

log = logging.getLogger(__name__)

RECEIPT = "outbox string, lane int, token bigint, records bigint, at timestamp"
"""What a group yields on a beat: how many records a lane delivered and purged since the beat before."""
JOB_PAUSE_SECONDS = 0.5
"""The pause before the job of a lost group is submitted again."""

Batches = Iterator[pyarrow.RecordBatch]


class SparkEngine:
    """Runs lane groups as tasks of one Spark application, which stays warm between terms.

    Args:
        name: The application's name.
        settings: Master, number of groups and Spark settings.
        lanes: How many lanes there will be.
    """

    def __init__(self, name: str, settings: EngineSettings, lanes: int) -> None:
        self._name = name
        self._settings = settings
        self._groups = min(lanes, settings.lane_groups or DEFAULT_GROUPS)
        self._master = settings.master or f"local[{self._groups + 1}]"
        self._session: SparkSession | None = None
        self._server: LinkServer | None = None
        self._jobs: list[Thread] = []
        self._ended = Lock()
        self._term: Term | None = None

    def warm(self) -> None:
        """Starts the application and a Python worker for each group, and makes sure of enough slots."""
        if self._session is not None:
            return
        session = self._start_session()
        context = session.sparkContext
        slots = context.defaultParallelism
        if slots < self._groups:
            session.stop()
            raise OutboxError(
                f"{self._groups} lane groups need {self._groups} task slots and {self._master} offers {slots}: "
                "groups without a slot would wait for ever; give it more cores or lower engine.laneGroups"
            )
        self._server = LinkServer(context.getConf().get("spark.driver.host", "127.0.0.1"))
        self._session = session
        # Starts the workers' Python and imports what lanes need, so that a takeover need not.
        context.parallelize(range(self._groups), self._groups).foreachPartition(_touch)

    def start(self, plan: Plan, term: Term) -> None:
        """Submits a job for each group."""
        self._term = term
        assert self._server is not None  # noqa: S101 - a harvest warms its engine before it is elected
        self._server.serve(term)
        groups = [range(plan.lanes)[group :: self._groups] for group in range(self._groups)]
        self._jobs = [
            Thread(target=self._keep, args=(plan, term, group, list(lanes)), name=f"group-{group}", daemon=True)
            for group, lanes in enumerate(groups)
        ]
        for job in self._jobs:
            job.start()

    def join(self, timeout: float) -> bool:
        """Waits for the jobs to end."""
        for job in self._jobs:
            job.join(timeout / len(self._jobs))
        return not any(job.is_alive() for job in self._jobs)

    def cancel(self) -> None:
        """Cancels all jobs: Spark ends their tasks, and kills the workers of those that will not end."""
        if self._session is not None:
            self._session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Stops the application."""
        if self._server is not None:
            self._server.close()
        if self._session is not None:
            self._session.stop()
            self._session = None

    def _keep(self, plan: Plan, term: Term, group: int, lanes: list[int]) -> None:
        """Runs one group's job, and again whenever it is lost, until the term is over."""
        assert self._session is not None  # noqa: S101 - started after warm
        assert self._server is not None  # noqa: S101 - started after warm
        run = _task(plan, group, lanes, self._server.address)
        while not term.over:
            try:
                self._session.sparkContext.setJobDescription(f"{plan.outbox}: lanes {lanes}")
                task = self._session.range(group, group + 1, 1, 1).mapInArrow(run, RECEIPT)
                task.write.format("noop").mode("overwrite").save()
            except PySparkException as error:
                if not term.over:
                    log.warning("lane group %d was lost, starting it anew: %s", group, _first_line(error))
                    Event().wait(JOB_PAUSE_SECONDS)

    def _start_session(self) -> SparkSession:
        home = java_home()
        os.environ["JAVA_HOME"] = str(home)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        conf = SparkConf().setAll({**self._defaults(), **self._settings.settings}.items())
        try:
            return SparkSession.builder.config(conf=conf).getOrCreate()
        except Exception as error:
            raise OutboxError(f"Spark did not start on {self._master}: {_first_line(error)}; {CURE}") from error

    def _defaults(self) -> dict[str, str]:
        local = self._master.startswith("local")
        defaults = {
            "spark.app.name": f"outbox {self._name}",
            "spark.master": self._master,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # Receipts leave at once, and a cancelled task hears of it at its next yield.
            "spark.python.udf.pipelined.enabled": "true",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
            # A lane is meant to run for ever: losing its worker now and then must not add up to failure.
            "spark.task.maxFailures": "1000000" if not local else "1",
            "spark.python.worker.faulthandler.enabled": "true",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J} -XX:+UseSerialGC",
        }
        if local:
            defaults |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.memory": "512m",
            }
        return defaults


DEFAULT_GROUPS = 2
LOG4J = Path(__file__).with_name("log4j2.properties").as_uri()


def _touch(_: Any) -> None:
    """Imports in the worker what a lane group will need."""
    import outbox_core.group  # noqa: F401, PLC0415 - the import is the work


def _task(
    plan: Plan, group: int, lanes: list[int], address: tuple[str, int, bytes]
) -> Callable[[Batches], Batches]:
    """Makes the function that Spark ships to the worker."""

    def run(batches: Batches) -> Batches:
        for _ in batches:
            pass  # one row says that the task is on; lanes find their records in the outbox
        with RemoteLink(address) as link:
            for purged in LaneGroup(plan, group, lanes, link).run():
                yield _receipts(plan, purged)

    return run


def _receipts(plan: Plan, purged: dict[int, int]) -> pyarrow.RecordBatch:
    at = datetime.now(UTC)
    rows = [
        {"outbox": plan.outbox, "lane": lane, "token": plan.token, "records": records, "at": at}
        for lane, records in purged.items()
    ]
    schema = pyarrow.schema(
        [
            ("outbox", pyarrow.string()),
            ("lane", pyarrow.int32()),
            ("token", pyarrow.int64()),
            ("records", pyarrow.int64()),
            ("at", pyarrow.timestamp("us", tz="UTC")),
        ]
    )
    return pyarrow.RecordBatch.from_pylist(rows, schema=schema)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
