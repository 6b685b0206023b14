"""The task slots of one outbox in the Spark application that all outboxes share."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from outbox_api import EngineError, EngineLost, Task, WorkerLost
from outbox_api.support.context_thread import ContextThread
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from outbox_spark.application import Application

LOST = (PySparkException, Py4JJavaError, ConnectionError)
"""What a job ends with when its worker is lost; anything else says that the JVM is."""
GONE_SECONDS = 5.0
"""How long workers that do not get ready are looked at."""
WARM_SECONDS = 120.0
"""How long workers may take to start and to load everything, on however slow a machine."""

_NO_DAEMON = "reading the port number from outbox_spark.daemon"
"""What Spark says when a Python does not start the daemon; why, only the executor's own log says."""
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Lost|Denied): ")


class SparkWorkers:
    """Runs the lane groups of one outbox as jobs of an application; see :class:`outbox_api.Workers`."""

    def __init__(self, application: Application, outbox: str, groups: int, close: Callable[[], None]) -> None:
        self.where = application.master
        self.address = application.address
        self._application = application
        self._outbox = outbox
        self._groups = groups
        self._close = close
        self._cancelling: ContextThread | None = None

    def warm(self, task: Task) -> None:
        """Runs a task in each slot; on a thread of its own, as the JVM may never answer.

        Slots that were counted may be lost before they are used, and a job would wait for others for ever.
        Tasks that run and do not end say that the application is of no use to anybody.
        """
        failed: list[Exception] = []

        def run() -> None:
            try:
                self._application.run(self._outbox, self._groups, task)
            except Exception as error:  # noqa: BLE001 - raised again on the thread that waits
                failed.append(error)

        warming = ContextThread(target=run, name="spark-warm", daemon=True)
        warming.start()
        warming.join(WARM_SECONDS)
        if warming.is_alive():
            looking = ContextThread(target=self._give_up_if_stuck, name="spark-stuck", daemon=True)
            looking.start()
            looking.join(GONE_SECONDS)
            self.cancel()
            raise EngineError(f"lanes cannot run on {self.where}: no worker is ready in time")
        for error in failed:
            if not isinstance(error, (*LOST, Py4JError, OSError)):
                raise error
            application = self._application
            told = isinstance(error, (*LOST, OSError)) and application.jvm.alive
            why = reason(error) if told else application.trouble
            raise EngineError(f"lanes cannot run on {self.where}: {why}") from error

    def run(self, task: Task, description: str) -> None:
        """Runs a job with one task, and waits for its end."""
        try:
            self._application.run(self._outbox, 1, task, description)
        except Exception as error:
            raise (WorkerLost if isinstance(error, LOST) else EngineError)(reason(error)) from error

    def check(self, seconds: float = 0.0) -> None:
        """Looks whether the JVM still lives; it may have been ended for another outbox."""
        application = self._application
        if application.jvm.gone(seconds):
            raise (EngineLost if application.defect else EngineError)(application.trouble)

    def cancel(self) -> None:
        """Cancels all jobs: Spark ends their tasks, and kills the workers of those that will not end."""
        if self._cancelling is None or not self._cancelling.is_alive():
            # A JVM that hangs would block its caller.
            self._cancelling = ContextThread(target=self._cancel, name="spark-cancel", daemon=True)
            self._cancelling.start()

    def close(self) -> None:
        """Stops the application, and kills its JVM if it hangs; unless other outboxes use it."""
        self.cancel()
        self._close()

    def _cancel(self) -> None:
        with suppress(Py4JError, OSError):  # of a JVM that is dead already
            self._application.context.cancelJobGroup(self._outbox)

    def _give_up_if_stuck(self) -> None:
        with suppress(Py4JError, OSError):
            if self._application.works_for(self._outbox):
                self._application.give_up(f"workers do not get ready within {WARM_SECONDS:.0f} s")


def reason(error: Exception) -> str:
    """Returns the line of a job's error that says why: the worker's last one, or the JVM's first."""
    if _NO_DAEMON in str(error):
        return (
            "the Python of its executors does not start outbox_spark.daemon: install there what the "
            "harvester has, or name the Python that has it as spark.pyspark.python in harvest.engine.settings"
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if said := [line for line in lines if _PYTHON_ERROR.match(line)]:
        return said[-1]
    # Before it, Py4J names the call that failed.
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (thrown or lines or [type(error).__name__])[0]
