"""One Spark application and one control server for all engines of a process."""

from __future__ import annotations

import logging
from math import ceil
from threading import Lock
from time import monotonic, sleep
from typing import NamedTuple

from outbox_sdk import OutboxError
from py4j.protocol import Py4JError
from pyspark import SparkConf

from outbox_core.config.settings import EngineSettings
from outbox_core.engines.spark.security import is_embedded, require_authentication
from outbox_core.engines.spark.session import Application
from outbox_core.leadership.tcp import ControlServer

log = logging.getLogger(__name__)

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
        settings: The master, the control channel's port and Spark's own settings.
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
        log.info("starting Spark on %s …", self.master)
        began = monotonic()
        application = Application(self._name, self.master, self._settings.settings)
        try:
            self._require_slots(application)
            server = self._listen(application.session.sparkContext.getConf())
        except Py4JError as error:  # its JVM has died, or hung and was killed
            application.stop()
            raise OutboxError(f"Spark did not start on {self.master}: {application.trouble}") from error
        except BaseException:
            application.stop()
            raise
        log.info("Spark has started, after %.1f s; its workers start next", monotonic() - began)
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
        port = self._settings.control_port or 0
        try:
            return ControlServer(host, port, bind)
        except OSError as error:
            raise OutboxError(
                f"cannot listen for lanes at {bind}:{port or '*'}: {error}; "
                "see engine.controlPort and spark.driver.bindAddress"
            ) from error

    def _require_slots(self, application: Application) -> None:
        """Makes sure that each group gets a task slot, and that a cluster does not take it back."""
        slots = self._slots(application)
        if slots < self._groups:
            raise OutboxError(
                f"{self._groups} lane groups need as many task slots, and {self.master} offers {slots}: "
                "groups without a slot would wait for ever; give it more cores or lower engine.laneGroups"
            )
        if not is_embedded(self.master):
            context = application.session.sparkContext
            executors = int(context._jsc.sc().getExecutorIds().size())  # noqa: SLF001 - PySpark cannot count them
            refuse_shrinking(context.getConf(), self._groups, slots // max(1, executors))

    def _slots(self, application: Application) -> int:
        """Counts task slots; a cluster's executors register one after the other, so they get some time."""
        conf = application.session.sparkContext._jsc.sc().conf()  # noqa: SLF001 - PySpark's reads no times
        give_up = monotonic() + (0 if is_embedded(self.master) else conf.getTimeAsSeconds(*SLOTS_PATIENCE))
        while (slots := application.ask().slots) < self._groups and monotonic() < give_up:
            sleep(0.2)
        return slots


def refuse_shrinking(conf: SparkConf, groups: int, slots: int) -> None:
    """Makes sure that a cluster does not take back the slots of a standby.

    Args:
        conf: Spark's settings.
        groups: How many slots are needed.
        slots: How many an executor has.

    Raises:
        OutboxError: It does; the message says which setting keeps them.
    """
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return
    needed, kept = ceil(groups / max(1, slots)), conf.get("spark.dynamicAllocation.minExecutors", "0")
    if int(kept or 0) < needed:
        raise OutboxError(
            "spark.dynamicAllocation.enabled takes back the executors of a standby, which are idle: set "
            f"spark.dynamicAllocation.minExecutors to {needed}, so that each of {groups} lane groups keeps a "
            f"slot (an executor has {slots}), or switch it off"
        )
