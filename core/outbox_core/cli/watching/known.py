"""What is known of the outboxes that somebody watches; databases are queried on other threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from outbox_api.base.errors import DriverError, OutboxError
from outbox_api.seams.parking import DeadLetter, DeadLetterStatus
from outbox_api.support.context_thread import ContextThread

from outbox_core import operations
from outbox_core.cli.outboxes import Chosen
from outbox_core.monitoring.polls import StatusPolls, View
from outbox_core.monitoring.statuses import Statuses
from outbox_core.settings import HarvestSettings
from outbox_core.status.model import Status, status_of
from outbox_core.status.snapshot import Snapshot, Views
from outbox_core.status.verdict import LastStatus
from outbox_core.text.redaction import redact_addresses


class Watched:
    """The last known state of each outbox; used on one loop, which no query holds up."""

    def __init__(self, chosen: Chosen, pause: float) -> None:
        self.single = chosen.single
        self.pause = pause  # seconds between two queries
        self.outboxes = {outbox.title: outbox for outbox in chosen.outboxes}
        self.known = {title: LastStatus() for title in self.outboxes}
        now = datetime.now(UTC)
        for title, error in chosen.failed:
            self.known[title] = LastStatus(error=redact_addresses(str(error)), away_since=now)
        self.lasting: OutboxError | None = None
        """The error of an outbox alone that no later query cures."""
        self._statuses = Statuses(StatusPolls(self._view))

    async def look(self) -> None:
        """Queries all outboxes; waits for a short while only for databases that do not answer."""
        known = await self._statuses.poll(list(self.outboxes.values()))
        for title, each in zip(self.outboxes, known, strict=True):
            self.known[title] = replace(each, error=redact_addresses(each.error))

    def status(self, title: str) -> Status:
        """Returns what is shown of an outbox."""
        return status_of(title, self.known[title], datetime.now(UTC))

    def statuses(self) -> list[Status]:
        """Returns what is shown of each outbox."""
        return [self.status(title) for title in self.known]

    def found(self) -> list[tuple[str, Snapshot | OutboxError]]:
        """Returns the title of each outbox that was looked at, and its state, or why that is not known."""
        return [
            (title, OutboxError(each.error) if each.error or each.snapshot is None else each.snapshot)
            for title, each in self.known.items()
            if each != LastStatus()
        ]

    async def parked(self, title: str) -> list[DeadLetter]:
        """Returns the dead letters of the keys that are parked in an outbox; the end waits for no query."""
        future = Future[list[DeadLetter]]()
        future.set_running_or_notify_cancel()

        def read() -> None:
            try:
                future.set_result(operations.letters(self.outboxes[title], DeadLetterStatus.PARKED))
            except BaseException as error:  # noqa: BLE001 - or who waits would wait for ever
                future.set_exception(error)

        ContextThread(target=read, name=f"parked-{title}", daemon=True).start()
        return await asyncio.wrap_future(future)

    @contextmanager
    def _view(self) -> Iterator[View]:
        with Views() as views:

            def look(settings: HarvestSettings) -> Snapshot:
                try:
                    return views.snapshot(settings)
                except OutboxError as error:
                    if self.single and not (isinstance(error, DriverError) and error.retryable):
                        self.lasting = error
                    raise

            yield look
