"""One Spark application and one control server for all engines of a process."""

from __future__ import annotations

from threading import Lock
from time import monotonic, sleep
from typing import NamedTuple

from outbox_sdk import OutboxError
from pyspark import SparkConf
from pyspark.sql import SparkSession

from outbox_core.config.settings import EngineSettings
from outbox_core.engines.spark.security import is_embedded, require_authentication
from outbox_core.engines.spark.session import Application
from outbox_core.leadership.tcp import ControlServer

SLOTS_PATIENCE = ("spark.scheduler.maxRegisteredResourcesWaitingTime", "30s")
"""Spark's own setting for how long a cluster is given to offer what it has, and its default."""


class Running(NamedTuple):
    """An application that runs, and the server that its lane groups connect to."""

    application: Application
    server: ControlServer


class SparkHost:
    """Starts the application for the first engine that needs it, and stops it after the last.

    Safe to use from any thread.

    Args:
        name: The harvester's name.
        settings: The master, the link's port and Spark's own settings.
        groups: The lane groups of all engines together, which may run at the same time.
        spare: Task slots beyond, of an embedded Spark. One is for a group that restarts, which then need not
            wait until its frozen copy is killed.
    """

    def __init__(self, name: str, settings: EngineSettings, groups: int, spare: int = 1) -> None:
        self._name = name
        self._settings = settings
        self._groups = groups
        given = settings.settings
        self.master = given.get("spark.master") or settings.master or f"local[{groups + spare}]"
        self._lock = Lock()
        self._users: set[str] = set()
        self._running: Running | None = None

    def open(self, user: str) -> Running:
        """Returns the application and the server, and starts them unless they run. Takes some seconds then.

        Args:
            user: Names the engine; each opens once before it closes.

        Raises:
            OutboxError: Spark does not start or offers too few slots; or the server cannot listen.
        """
        with self._lock:
            running = self._running
            if running is None or not running.application.alive:
                self._stop()
                running = self._start()
            self._users.add(user)
            return running

    def close(self, user: str) -> None:
        """Stops application and server if no other engine uses them; ends a JVM that hangs. Idempotent."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._stop()

    def _start(self) -> Running:
        require_authentication(self.master, self._settings.settings)
        application = Application(self._name, self.master, self._settings.settings)
        try:
            self._require_slots(application.session)
            server = self._listen(application.session.sparkContext.getConf())
        except BaseException:
            application.stop()
            raise
        self._running = Running(application, server)
        return self._running

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.server.close()
            running.application.stop()

    def _listen(self, conf: SparkConf) -> ControlServer:
        host = conf.get("spark.driver.host") or "127.0.0.1"
        bind = conf.get("spark.driver.bindAddress") or host
        port = self._settings.link_port or 0
        try:
            return ControlServer(host, port, bind)
        except OSError as error:
            raise OutboxError(
                f"cannot listen for lanes at {bind}:{port or '*'}: {error}; "
                "see engine.linkPort and spark.driver.bindAddress"
            ) from error

    def _require_slots(self, session: SparkSession) -> None:
        """Makes sure that each group gets a task slot, and that a cluster does not take it back."""
        refuse_shrinking(session.sparkContext.getConf())
        slots = self._slots(session)
        if slots < self._groups:
            raise OutboxError(
                f"{self._groups} lane groups need as many task slots, and {self.master} offers {slots}: "
                "groups without a slot would wait for ever; give it more cores or lower engine.laneGroups"
            )

    def _slots(self, session: SparkSession) -> int:
        """Counts task slots; a cluster's executors register one after the other, so they get some time."""
        scala = session.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark itself cannot count free slots
        patience = 0 if is_embedded(self.master) else scala.conf().getTimeAsSeconds(*SLOTS_PATIENCE)
        give_up = monotonic() + patience
        profile = scala.resourceProfileManager().defaultResourceProfile()
        while (slots := int(scala.maxNumConcurrentTasks(profile))) < self._groups and monotonic() < give_up:
            sleep(0.2)
        return slots


def refuse_shrinking(conf: SparkConf) -> None:
    """Makes sure that a cluster does not take back the slots of a standby.

    Raises:
        OutboxError: It does; the message says which setting keeps them.
    """
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return
    if int(conf.get("spark.dynamicAllocation.minExecutors", "0") or 0) == 0:
        raise OutboxError(
            "spark.dynamicAllocation.enabled takes back the executors of a standby, which are idle: set "
            "spark.dynamicAllocation.minExecutors so that each lane group keeps a slot, or switch it off"
        )
