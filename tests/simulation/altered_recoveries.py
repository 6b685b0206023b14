"""Recoveries that take no account of some replies, or leave out requests; see ``takeover_mutants``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outbox_core.delivery.recovery import Opened, Recovered, Recovery
from outbox_core.delivery.requests import PurgeBatches, RecoveryRequest, Result, Steps
from outbox_sdk import Advanced, OutboxError


def altered(
    steps: Steps[Result],
    reply_to: Callable[[RecoveryRequest, Any], Any],
    instead: Callable[[RecoveryRequest], Any] = lambda _: None,
) -> Steps[Result]:
    """Alters the replies to the requests of a recovery, or replies ``instead`` of who carries them out."""
    try:
        request = next(steps)
        while True:
            if (reply := instead(request)) is None:
                try:
                    reply = reply_to(request, (yield request))
                except OutboxError as error:
                    request = steps.throw(error)
                    continue
            request = steps.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result


class PurgedWhereNamed(Recovery):
    """Checks the fence only where the checkpoint names something, and else writes an empty one unchecked."""

    def open(self, lane: int) -> Steps[Opened]:
        def instead(request: RecoveryRequest) -> Advanced | None:
            return Advanced(0, []) if isinstance(request, PurgeBatches) and not request.batches else None

        return altered(super().open(lane), lambda _, reply: reply, instead)


def _locks_unseen(request: RecoveryRequest, reply: Any) -> Any:
    return reply._replace(locked=()) if isinstance(request, PurgeBatches) else reply


class LocksUnseen(Recovery):
    """Writes an empty checkpoint also where rows were locked."""

    def open(self, lane: int) -> Steps[Opened]:
        return altered(super().open(lane), _locks_unseen)


class LocksUntold(Recovery):
    """Does not tell the lane which rows were locked."""

    def open(self, lane: int) -> Steps[Opened]:
        return (yield from super().open(lane))._replace(locked=())


class LocksLeftBehind(Recovery):
    """Ends the note of a former lane though some of its rows were locked."""

    def _recover_lane(self, lane: int) -> Steps[Recovered]:
        return altered(super()._recover_lane(lane), _locks_unseen)
