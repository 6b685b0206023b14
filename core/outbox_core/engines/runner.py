"""Runs the lanes of leaderships on an engine: one group for each task, again when its process is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import monotonic, sleep

from outbox_api import EngineError, Needs, Task, WorkerLost, Workers
from outbox_api.support.context_thread import ContextThread, as_exception

from outbox_core.control.tcp import ControlServer
from outbox_core.engines.tasks import GroupTask, WarmingTask
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.threads import run_group
from outbox_core.leadership.leader import Leadership
from outbox_core.settings import HarvestSettings

log = logging.getLogger("outbox.engines")

PAUSE_SECONDS = 0.5
"""The pause before a lost group is restarted."""
EARLY_END_SECONDS, MAX_EARLY_ENDS = 5.0, 3
"""A group that ends this soon after its start, this many times in a row, is given up."""


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """How a group has ended."""

    error: Exception
    lost: bool  # whether only its process is lost, so that a restart may succeed
    reason: str  # the error in one line


def supervise_group(
    leadership: Leadership,
    group: int,
    run: Callable[[], GroupEnd],
    *,
    clock: Callable[[], float] = monotonic,
    sleep: Callable[[float], object] = sleep,
    pause: float = PAUSE_SECONDS,
    early_end_seconds: float = EARLY_END_SECONDS,
) -> Exception | None:
    """Runs one group, and restarts it whenever it is lost, until the leadership is over.

    Stops the leadership, and returns why, if the group cannot be restarted.
    """
    early_ends = 0
    while not leadership.over:
        started = clock()
        leadership.expect([group])
        end = run()
        if leadership.over:
            return None
        early_ends = early_ends + 1 if clock() < started + early_end_seconds else 0
        if early_ends == MAX_EARLY_ENDS or not end.lost:
            leadership.stop()
            return end.error
        log.warning("lane group %d was lost, restarting it: %s", group, end.reason)
        sleep(pause)
    return None


GONE_SECONDS = 5.0
"""How long an engine may be seen after its tasks have failed: it is being killed, or about to be given up."""


class SharedEngine:
    """The engine of a process, and the server that the tasks of all its outboxes report to.

    Safe to use from any thread. ``outboxes`` are those that are known by now.
    """

    def __init__(self, process: HarvestSettings, outboxes: Iterable[HarvestSettings], spare: int = 1) -> None:
        self._engine = process.engine.create()
        self._port: int = getattr(process.engine.options, "control_port", None) or 0
        self._needs = Needs(process.name, sum(outbox.lane_groups for outbox in outboxes), spare)
        self._lock = Lock()
        self._users: set[str] = set()
        self._server: ControlServer | None = None

    def open(self, outbox: HarvestSettings) -> tuple[Workers, ControlServer | None]:
        """Opens workers for an outbox, and starts the server unless they are this process itself."""
        workers = self._engine.open(outbox.title, outbox.lane_groups, self._needs)
        if workers.address is None:
            return workers, None
        host, bind = workers.address
        with self._lock:
            try:
                self._server = self._server or ControlServer(host, self._port, bind)
            except OSError as error:
                workers.close()
                at = f"{bind or host}:{self._port or '*'}"
                raise EngineError(
                    f"cannot listen for lanes at {at} ({error.strerror}): harvest.engine.controlPort must be "
                    "free, and the address one of this machine"
                ) from error
            self._users.add(outbox.title)
            return workers, self._server

    def close(self, outbox: HarvestSettings, workers: Workers | None) -> None:
        """Closes what :meth:`open` has opened for an outbox, or nothing. Idempotent."""
        with self._lock:
            self._users.discard(outbox.title)
            if self._server is not None:
                self._server.forget(outbox.title)
            if not self._users and self._server is not None:
                self._server.close()
                self._server = None
        if workers is not None:
            workers.close()


class LaneRunner:
    """Runs the lanes of one outbox, those of one leadership at a time."""

    def __init__(self, settings: HarvestSettings, engine: SharedEngine | None = None) -> None:
        self._settings = settings
        self._engine = engine or SharedEngine(settings, [settings])
        self._workers: Workers | None = None
        self._server: ControlServer | None = None
        self._groups: list[ContextThread] = []
        self._crash: Exception | None = None

    def warm(self) -> None:
        """Gets ready to start lanes without delay; again after :meth:`close`. May take many seconds."""
        if self._workers is not None:
            return
        settings = self._settings
        self._workers, self._server = self._engine.open(settings)
        if self._server is not None:
            choices = (settings.dialect, settings.affinity, settings.publisher, *settings.transforms)
            self._workers.warm(WarmingTask(choices, self._server.address))

    def start(self, plan: Plan, leadership: Leadership) -> None:
        """Starts all lanes of the plan and returns; they run until the leadership is over.

        Groups of lanes that can be lost without this process being told are announced to the leadership,
        which counts their silence.
        """
        self._crash = None
        lanes, outbox = range(plan.lanes), self._settings
        if self._server is None:
            runs = [partial(self._run_here, partial(run_group, plan, 0, lanes, leadership))]
        else:
            self._server.serve(leadership, outbox.title)
            leader = self._server.address, outbox.title
            tasks = [
                GroupTask(plan, group, list(lanes[group :: outbox.lane_groups]), leader)
                for group in range(outbox.lane_groups)
            ]
            runs = [partial(self._supervise, task, leadership) for task in tasks]
        self._groups = [
            ContextThread(target=run, name=f"group-{group}", daemon=True) for group, run in enumerate(runs)
        ]
        for group in self._groups:
            group.start()

    def join(self, timeout: float) -> bool:
        """Waits up to ``timeout`` seconds for all lanes to end; returns whether they have."""
        for group in self._groups:
            group.join(timeout / len(self._groups))
        if any(group.is_alive() for group in self._groups):
            return False
        if self._crash is not None and self._workers is not None and self._server is not None:
            self._workers.check(GONE_SECONDS)
            raise EngineError(
                f"lanes do not stay alive on {self._workers.where}: {self._crash}"
            ) from self._crash
        if self._crash is not None:
            raise self._crash
        return True

    def check(self) -> None:
        """Looks whether lanes could still be started; cheap."""
        if self._workers is not None:
            self._workers.check()

    def cancel(self) -> None:
        """Has lanes ended that did not end when told; their work in flight has an unknown outcome.

        Threads of this process are left to themselves: they have their orders, and no lease to work on.
        Never waits, and may be called again and again: :meth:`join` tells whether they have ended.
        """
        if self._server is None:
            self._groups = []
        elif self._workers is not None:
            self._workers.cancel()

    def close(self) -> None:
        """Frees everything within a few seconds, also what hangs. Idempotent."""
        workers, self._workers, self._server = self._workers, None, None
        self._engine.close(self._settings, workers)

    def _run_here(self, task: Task) -> None:
        """Runs all lanes in this process, which cannot be lost; the thread of the only group."""
        assert self._workers is not None  # noqa: S101 - a harvest warms its engine before it is elected
        try:
            self._workers.run(task, "")
        except BaseException as error:  # noqa: BLE001 - raised again by join()
            self._crash = as_exception(error)

    def _supervise(self, task: GroupTask, leadership: Leadership) -> None:
        """Runs one group, and again whenever it is lost; the thread of the group."""
        workers = self._workers
        assert workers is not None  # noqa: S101 - as above

        def run() -> GroupEnd:
            try:
                workers.run(task, f"{task.plan.outbox}: lanes {task.lanes}")
            except BaseException as error:  # noqa: BLE001 - judged by supervise_group()
                return GroupEnd(as_exception(error), isinstance(error, WorkerLost), str(error))
            lost = WorkerLost("the lanes lost touch with their leader")
            return GroupEnd(lost, lost=True, reason=str(lost))

        try:
            error = supervise_group(leadership, task.group, run)
        except BaseException as defect:  # noqa: BLE001 - raised again by join()
            leadership.stop()
            error = as_exception(defect)
        self._crash = self._crash or error
