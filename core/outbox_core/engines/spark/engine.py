"""The Spark engine: lanes as long-running tasks of a Spark application, embedded or on a cluster.

Each lane group is a Spark job of its own with one task, which runs the lanes until the leadership is over and
yields Arrow batches of receipts meanwhile. One job for each group, because a lost worker then takes no other
group with it; no micro-batches, because starting one takes longer than moving a thousand records.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from time import sleep

from outbox_sdk import OutboxError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from outbox_core.config.settings import HarvestSettings
from outbox_core.engines.spark.host import SparkHost
from outbox_core.engines.spark.session import Application
from outbox_core.engines.spark.task import Task, harvest_task, warming_task
from outbox_core.engines.supervision import GroupEnd, RunGroup, supervise_group
from outbox_core.lanes.plan import Plan
from outbox_core.leadership.leader import Leadership
from outbox_core.leadership.requests import EngineLost
from outbox_core.leadership.tcp import ControlServer
from outbox_core.log_context import ContextThread
from outbox_core.steps import Sleep, run_steps

log = logging.getLogger(__name__)

LOST = (PySparkException, Py4JJavaError, ConnectionError)
"""What a job ends with when its worker is lost; anything else says that the JVM is."""
MAX_GROUPS = 2
"""Lane groups when the settings name no number: a worker process each."""
GONE_SECONDS = 5.0
"""How long a JVM may be seen after its jobs have failed: it is being killed, or about to be given up."""
WARM_SECONDS = 120.0
"""How long workers may take to start and to load everything, on however slow a machine."""

_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Lost|Denied): ")


class SparkEngine:
    """Runs lane groups as tasks of one Spark application, which stays warm between leaderships.

    Args:
        settings: The harvest's settings; its engine's say the master, the number of groups and Spark's own.
        host: The application; ``None`` for one of its own.
    """

    def __init__(self, settings: HarvestSettings, host: SparkHost | None = None) -> None:
        self._settings = settings
        self._groups = groups_of(settings)
        self._host = host or SparkHost(settings.name, settings.engine, self._groups)
        self._key = settings.title
        """Names this engine's jobs and channel among those of other engines."""
        self._application: Application | None = None
        self._server: ControlServer | None = None
        self._jobs: list[ContextThread] = []
        self._cancelling: ContextThread | None = None
        self._crash: Exception | None = None

    def warm(self) -> None:
        """Starts the application and a Python worker for each group.

        Makes sure of enough slots, and that workers reach this process.
        """
        if self._application is not None:
            return
        settings = self._settings
        self._application, server = application, self._server = self._host.open(self._key)
        choices = (settings.dialect, settings.affinity, settings.publisher)
        self._warm_workers(application, warming_task(choices, server.address))

    def _warm_workers(self, application: Application, task: Task) -> None:
        """Runs a task for each group; on a thread of its own, as the JVM may never answer.

        Slots that were counted may be lost before they are used, and a job would wait for others for ever.
        Tasks that run and do not end say that the application is of no use to anybody.
        """
        failed: list[Exception] = []

        def run() -> None:
            try:
                application.run(self._key, range(self._groups), task)
            except Exception as error:  # noqa: BLE001 - raised again on the thread that waits
                failed.append(error)

        warming = ContextThread(target=run, name="spark-warm", daemon=True)
        warming.start()
        warming.join(WARM_SECONDS)
        if warming.is_alive():
            looking = ContextThread(
                target=_give_up_if_stuck, args=(application, self._key), name="spark-stuck", daemon=True
            )
            looking.start()
            looking.join(GONE_SECONDS)
            self.cancel()
            raise OutboxError(f"lanes cannot run on {self._host.master}: no worker is ready in time")
        for error in failed:
            if not isinstance(error, (*LOST, Py4JError, OSError)):
                raise error
            reason = _reason(error) if isinstance(error, LOST) and application.alive else application.trouble
            raise OutboxError(f"lanes cannot run on {self._host.master}: {reason}") from error

    def start(self, plan: Plan, leadership: Leadership) -> None:
        """Submits a job for each group."""
        assert self._server is not None  # noqa: S101 - a harvest warms its engine before it is elected
        self._server.serve(leadership, self._key)
        self._crash = None
        groups = [range(plan.lanes)[group :: self._groups] for group in range(self._groups)]
        self._jobs = [
            ContextThread(
                target=self._supervise,
                args=(plan, leadership, group, list(lanes)),
                name=f"group-{group}",
                daemon=True,
            )
            for group, lanes in enumerate(groups)
        ]
        for job in self._jobs:
            job.start()

    def join(self, timeout: float) -> bool:
        """Waits for the jobs to end."""
        for job in self._jobs:
            job.join(timeout / len(self._jobs))
        if any(job.is_alive() for job in self._jobs):
            return False
        if self._crash is not None:
            self._check(GONE_SECONDS)
            raise OutboxError(
                f"lanes do not stay alive on {self._host.master}: {_reason(self._crash)}"
            ) from self._crash
        return True

    def check(self) -> None:
        """Looks whether the JVM still lives.

        Raises:
            EngineLost: It was ended because the application is of no use any more, maybe for another outbox.
            OutboxError: It has died.
        """
        self._check(0)

    def cancel(self) -> None:
        """Cancels all jobs: Spark ends their tasks, and kills the workers of those that will not end."""
        application, cancelling = self._application, self._cancelling
        if application is None or (cancelling is not None and cancelling.is_alive()):
            return
        # A JVM that hangs would block its caller.
        self._cancelling = ContextThread(
            target=_cancel, args=(application, self._key), name="spark-cancel", daemon=True
        )
        self._cancelling.start()

    def close(self) -> None:
        """Stops the application, and kills its JVM if it hangs; unless other engines use it."""
        self.cancel()
        self._application = self._server = None
        self._host.close(self._key)

    def _check(self, seconds: float) -> None:
        application = self._application
        if application is not None and application.gone(seconds):
            raise (EngineLost if application.defect else OutboxError)(application.trouble)

    def _supervise(self, plan: Plan, leadership: Leadership, group: int, lanes: list[int]) -> None:
        """Runs one group's job, and again whenever it is lost; the thread of the group."""
        server = self._server
        assert server is not None  # noqa: S101 - started after warm
        task = harvest_task(plan, group, lanes, (server.address, self._key))

        def execute(request: RunGroup | Sleep) -> GroupEnd | None:
            if isinstance(request, Sleep):
                sleep(request.seconds)
                return None
            return self._run_until_lost(f"{plan.outbox}: lanes {lanes}", group, task)

        error = run_steps(supervise_group(leadership, group), execute)
        self._crash = self._crash or error

    def _run_until_lost(self, description: str, group: int, task: Task) -> GroupEnd:
        """Runs one group's job, and returns how it ended."""
        assert self._application is not None  # noqa: S101 - started after warm
        try:
            self._application.run(self._key, range(group, group + 1), task, description)
        except Exception as error:  # noqa: BLE001 - judged by the caller
            return GroupEnd(error, isinstance(error, LOST), _reason(error))
        lost = ConnectionError("the lanes lost touch with their leader")
        return GroupEnd(lost, lost=True, reason=str(lost))


def groups_of(settings: HarvestSettings) -> int:
    """Returns the number of lane groups."""
    return min(settings.limits.send_concurrency, settings.engine.lane_groups or MAX_GROUPS)


def _give_up_if_stuck(application: Application, key: str) -> None:
    with suppress(Py4JError, OSError):
        if application.works_for(key):
            application.give_up(f"workers do not get ready within {WARM_SECONDS:.0f} s")


def _cancel(application: Application, key: str) -> None:
    with suppress(Py4JError, OSError):  # of a JVM that is dead already
        application.session.sparkContext.cancelJobGroup(key)


def _reason(error: Exception) -> str:
    """Returns the line of a job's error that says why: the worker's last one, or the JVM's first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if said := [line for line in lines if _PYTHON_ERROR.match(line)]:
        return said[-1]
    # Before it, Py4J names the call that failed.
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (thrown or lines or [type(error).__name__])[0]
