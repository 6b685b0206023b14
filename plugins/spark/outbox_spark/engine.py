"""The engine: one Spark application for all outboxes of a harvester."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from math import ceil
from threading import Lock
from time import monotonic, sleep

from outbox_api import EngineError, Finding, Needs
from py4j.protocol import Py4JError
from pyspark import SparkConf

from outbox_spark.application import Application
from outbox_spark.check import check
from outbox_spark.options import SparkOptions
from outbox_spark.security import is_embedded, require_authentication
from outbox_spark.workers import SparkWorkers

log = logging.getLogger("outbox.spark")

SLOTS_PATIENCE = ("spark.scheduler.maxRegisteredResourcesWaitingTime", "30s")
"""Spark's own setting for how long a cluster is given to offer what it has, and its default."""


class SparkEngine:
    """Starts the application for the first outbox that needs it, and stops it after the last.

    See :class:`outbox_api.Engine`.
    """

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._lock = Lock()
        self._users: set[str] = set()
        self._application: Application | None = None

    def open(self, outbox: str, groups: int, needs: Needs) -> SparkWorkers:
        """Returns slots of the application, and starts it unless it runs. Takes some seconds then."""
        with self._lock:
            application = self._application
            if application is None or not application.jvm.alive:
                self._stop()
                self._application = application = self._start(needs)
            workers = SparkWorkers(application, outbox, groups, partial(self._leave, outbox))
            self._users.add(outbox)
            return workers

    def check(self, groups: int) -> Sequence[Finding]:
        """Checks that there are Java and task slots, and that nobody else can read tasks."""
        return check(self._options, groups)

    def _leave(self, outbox: str) -> None:
        with self._lock:
            self._users.discard(outbox)
            if not self._users:
                self._stop()

    def _start(self, needs: Needs) -> Application:
        settings = self._options.settings
        master = self._options.master_for(needs.groups + needs.spare)
        require_authentication(master, settings)
        log.info("starting Spark on %s …", master)
        began = monotonic()
        application = Application(needs.name, master, settings)
        try:
            _require_slots(application, needs.groups)
        except Py4JError as error:  # its JVM has died, or hung and was killed
            application.stop()
            raise EngineError(f"Spark did not start on {master}: {application.trouble}") from error
        except BaseException:
            application.stop()
            raise
        log.info("Spark has started, after %.1f s; its workers start next", monotonic() - began)
        return application

    def _stop(self) -> None:
        application, self._application = self._application, None
        if application is not None:
            application.stop()


def _require_slots(application: Application, groups: int) -> None:
    """Makes sure that each group gets a task slot, and that a cluster does not take it back."""
    slots = _slots(application, groups)
    if slots < groups:
        raise EngineError(
            f"{groups} lane groups need as many task slots, and {application.master} offers {slots}: "
            "groups without a slot would wait for ever; give it more cores or lower engine.laneGroups"
        )
    if not is_embedded(application.master):
        context = application.context
        executors = int(context._jsc.sc().getExecutorIds().size())  # noqa: SLF001 - PySpark cannot count them
        refuse_shrinking(context.getConf(), groups, slots // max(1, executors))


def _slots(application: Application, groups: int) -> int:
    """Counts task slots; a cluster's executors register one after the other, so they get some time."""
    conf = application.context._jsc.sc().conf()  # noqa: SLF001 - PySpark's reads no times
    patience = 0 if is_embedded(application.master) else conf.getTimeAsSeconds(*SLOTS_PATIENCE)
    give_up = monotonic() + patience
    while (slots := application.ask().slots) < groups and monotonic() < give_up:
        sleep(0.2)
    return slots


def refuse_shrinking(conf: SparkConf, groups: int, slots: int) -> None:
    """Makes sure that a cluster does not take back the slots of a standby."""
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return
    needed, kept = ceil(groups / max(1, slots)), conf.get("spark.dynamicAllocation.minExecutors", "0")
    if int(kept or 0) < needed:
        raise EngineError(
            "spark.dynamicAllocation.enabled takes back the executors of a standby, which are idle: set "
            f"spark.dynamicAllocation.minExecutors to {needed}, so that each of {groups} lane groups keeps a "
            f"slot (an executor has {slots}), or switch it off"
        )
