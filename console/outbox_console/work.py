"""Work with databases, which takes as long as they do: on threads, and bounded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from outbox_api.base.errors import DriverError, OutboxError
from outbox_api.support.context_thread import ContextThread
from outbox_core.operations import UNCERTAIN
from outbox_core.text.duration import format_duration

from outbox_console.requests import RefusedError

log = logging.getLogger("outbox.console")

MOST_AT_ONCE = 4
"""Threads that read, and as many that change something, each with a connection to a database.

Who may only look can take no place of a verb.
"""
MOST_SURVEYS = 2
"""Threads that read whole tables, which take no place of the others."""
PATIENCE = 10.0
"""Seconds for which a client waits, for a thread and for the database together."""
SURVEY_PATIENCE = 30.0
"""Seconds for which one waits whose question may read a whole table."""

Result = TypeVar("Result")


class Work:
    """Does work on threads, for handlers of one event loop.

    A thread whose database hangs keeps its place until the database's driver gives up. The end of the process
    waits for none.
    """

    def __init__(self) -> None:
        self._reads = asyncio.Semaphore(MOST_AT_ONCE)
        self._deeds = asyncio.Semaphore(MOST_AT_ONCE)
        self._surveys = asyncio.Semaphore(MOST_SURVEYS)

    async def read(self, do: Callable[[], Result]) -> Result:
        """Returns what ``do`` returns, which must not change anything."""
        return await self._run(do, self._reads, "")

    async def survey(self, do: Callable[[], Result]) -> Result:
        """Returns what ``do`` returns, which only reads, but may read a whole table."""
        return await self._run(do, self._surveys, "", SURVEY_PATIENCE)

    async def action(self, do: Callable[[], Result]) -> Result:
        """Returns what ``do`` returns, which changes something, and goes on if it takes too long."""
        return await self._run(do, self._deeds, f"; {UNCERTAIN}")

    async def _run(
        self,
        do: Callable[[], Result],
        places: asyncio.Semaphore,
        unknown: str,
        patience: float | None = None,
    ) -> Result:
        loop, patience = asyncio.get_running_loop(), patience or PATIENCE
        end = loop.time() + patience
        try:
            async with asyncio.timeout_at(end):
                await places.acquire()
        except TimeoutError:
            busy = "nothing was done: too many others wait for databases; try again later"
            raise RefusedError(503, busy, {"Retry-After": "10"}) from None
        done = asyncio.wrap_future(self._start(do, places, loop))
        await asyncio.wait([done], timeout=end - loop.time())
        if not done.done():
            done.cancel()
            raise RefusedError(504, f"the database has not answered for {format_duration(patience)}{unknown}")
        try:
            return done.result()
        except RefusedError:
            raise
        except OutboxError as error:
            raise _refused(error) from error
        except Exception as error:
            log.exception("a request over HTTP has failed")
            raise RefusedError(500, f"this has failed; the harvester's log says why{unknown}") from error

    def _start(
        self, do: Callable[[], Result], places: asyncio.Semaphore, loop: asyncio.AbstractEventLoop
    ) -> Future[Result]:
        future = Future[Result]()
        future.set_running_or_notify_cancel()  # who stops waiting does not stop it

        def run() -> None:
            try:
                result = do()
            except Exception as error:  # noqa: BLE001 - told to whoever waits
                future.set_exception(error)
            else:
                future.set_result(result)
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(places.release)

        try:
            ContextThread(target=run, name="http-work", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            places.release()
            raise RefusedError(503, "nothing was done: this machine has no thread for it") from None
        return future


def _refused(error: OutboxError) -> RefusedError:
    if not isinstance(error, DriverError):
        return RefusedError(409, str(error))
    if error.retryable:
        return RefusedError(503, str(error), {"Retry-After": "10"})
    return RefusedError(502, str(error))
