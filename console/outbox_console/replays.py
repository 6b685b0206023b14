"""Replays that this process does: each on a thread of its own, which outlasts the request that began it."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock, Thread
from typing import Self

from outbox_api.base.errors import OutboxError
from outbox_api.support.context_thread import ContextThread, as_exception
from outbox_core import operations
from outbox_core.operations import Operator, Pace, Prepared, Wanted
from outbox_core.operations.replaying import MOST_WAITING
from outbox_core.settings import HarvestSettings

log = logging.getLogger("outbox.console")

PATIENCE = 8.0
"""Seconds for which who begins one waits until it is noted; it goes on without them."""
_END_SECONDS = 1.0
"""How long the end waits for the page that is being stashed."""


@dataclass(slots=True)
class Run:
    """A replay that this process does, or did last."""

    name: str
    begun: Future[Prepared] = field(default_factory=Future[Prepared])  # done once the journal has noted it
    thread: Thread | None = None
    error: str = ""  # what it has failed with; free of secrets

    @property
    def is_running(self) -> bool:
        """Whether it is under way here."""
        return self.thread is not None and self.thread.is_alive()


class Replays:
    """Does replays, one at a time of each outbox; a context manager that stops them. Any thread may use it.

    One that stops or fails is not lost: whoever asks for the same replay again goes on with it.
    """

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._lock = Lock()
        self._stopping = Event()

    def begin(
        self, settings: HarvestSettings, wanted: Wanted, operator: Operator, rate: int | None = None
    ) -> Prepared | None:
        """Begins a replay, or goes on with it; returns what it is about to do, ``None`` if not known yet.

        Waits for ``PATIENCE`` at most until the journal has noted it.

        Raises:
            OutboxError: It cannot be done, or another one of this outbox is under way here.
        """
        run = Run(wanted.name)
        with self._lock:
            before = self._runs.get(settings.title)
            if before is not None and before.is_running:
                raise OutboxError(
                    f"nothing was done: this process does the replay '{before.name}' of this outbox; wait "
                    "until it has ended, or give it up"
                )
            do = partial(self._do, run, settings, wanted, operator, rate)
            run.thread = ContextThread(target=do, name=f"replay-{settings.title}", daemon=True)
            try:
                run.thread.start()
            except RuntimeError:
                raise OutboxError("nothing was done: this machine has no thread for it") from None
            self._runs[settings.title] = run
        try:
            return run.begun.result(PATIENCE)
        except TimeoutError:
            return None
        except Exception:
            run.error = ""  # as it is told here
            raise

    def last(self, settings: HarvestSettings) -> Run | None:
        """Returns the replay of an outbox that this process does, or did last."""
        return self._runs.get(settings.title)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stops all of them behind the page that each stashes now; waits a little for that."""
        self._stopping.set()
        for run in [*self._runs.values()]:
            if run.thread is not None:
                run.thread.join(_END_SECONDS / len(self._runs))

    def _do(
        self, run: Run, settings: HarvestSettings, wanted: Wanted, operator: Operator, rate: int | None
    ) -> None:
        about = f"replay '{wanted.name}' of outbox '{settings.title}'"
        try:
            prepared = operations.prepare_replay(settings, wanted)
            if not prepared.kept.records and not prepared.resumed:
                raise OutboxError("nothing was done: nothing is kept that was chosen")  # noqa: TRY301 - told likewise

            def wait(seconds: float) -> bool:
                if not run.begun.done():  # it is noted before the first wait
                    run.begun.set_result(prepared)
                    log.info("%s: %s", about, "goes on" if prepared.resumed else "begins")
                return self._stopping.wait(seconds)

            held_up = partial(log.info, "%s waits: more than %s rows wait in the outbox", about, MOST_WAITING)
            done = operations.replay(settings, prepared, operator, Pace(wait, lambda _: None, held_up, rate))
            log.info("%s: %s", about, done.outcome or f"stopped, {done.state.progress}")
            if done.unnoted:
                log.warning("%s: %s", about, done.unnoted)
        except BaseException as raised:
            error = as_exception(raised)
            is_known = isinstance(error, OutboxError)
            run.error = str(error) if is_known else "this has failed; the harvester's log says why"
            level = logging.INFO if is_known and not run.begun.done() else logging.WARNING
            log.log(level, "%s has failed: %s", about, run.error, exc_info=None if is_known else error)
            if not run.begun.done():
                run.begun.set_exception(error)
