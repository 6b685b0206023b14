"""Deliberate bugs in how exactly-once delivery begins: whom it fences, what it reads, what it settles.

They mutate ``outbox_core.delivery.recovery``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from outbox_core.config.settings import Delivery
from outbox_core.delivery.recovery import Recovery, TakenOver
from outbox_core.delivery.requests import (
    EmptyCheckpoint,
    OpenSender,
    PurgeBatches,
    RaiseFence,
    ReadNotes,
    Steps,
    WriteNote,
)
from outbox_sdk import Batch, DriverError, Fence, TransactionalLane

from .recovery import Unawaited

# --- the order of steps ----------------------------------------------------------------------------------


class EarlyReader(Recovery):
    """Reads the checkpoint before it opens the sender."""

    def _take_over(self, name: str, noted: TransactionalLane | None) -> Steps[tuple[str, Sequence[Batch]]]:
        checkpoint = yield from self._read_checkpoint(noted.sender if noted else name, noted)
        return (yield OpenSender(name)), checkpoint


class WipedCheckpoint(Recovery):
    """Writes the empty checkpoint before what the former one names is purged."""

    def _replace_checkpoint(self, fence: Fence, name: str, checkpoint: Sequence[Batch]) -> Steps[int]:
        yield EmptyCheckpoint(name)
        return (yield from self._purge(fence, checkpoint))


class CheckpointIgnored(Recovery):
    def _purge(self, fence: Fence, checkpoint: Sequence[Batch]) -> Steps[int]:
        return (yield from super()._purge(fence, []))


class MissingCheckpointTrusted(Recovery):
    def _read_checkpoint(self, name: str, noted: TransactionalLane | None) -> Steps[Sequence[Batch]]:
        try:
            return (yield from super()._read_checkpoint(name, noted))
        except DriverError as error:
            if error.retryable:
                raise
            return []


class PurgedWhereNamed(Recovery):
    """Checks the fence only where the checkpoint names something, and else writes an empty one unchecked."""

    def _purge(self, fence: Fence, checkpoint: Sequence[Batch]) -> Steps[int]:
        return (yield from super()._purge(fence, checkpoint)) if checkpoint else 0


class PurgedOnce(Recovery):
    """Takes a purge that was cut short for complete."""

    def _purge(self, fence: Fence, checkpoint: Sequence[Batch]) -> Steps[int]:
        purged: int = yield PurgeBatches(fence, checkpoint)
        return purged


# --- names and places ------------------------------------------------------------------------------------


class OwnPlace(Recovery):
    """Reads the checkpoint at its own place, and not where it is noted."""

    def _take_over(self, name: str, noted: TransactionalLane | None) -> Steps[tuple[str, Sequence[Batch]]]:
        return (yield from super()._take_over(name, replace(noted, location="") if noted else None))


class OwnName(Recovery):
    """Leaves alone the sender of another name that is noted."""

    def _take_over(self, name: str, noted: TransactionalLane | None) -> Steps[tuple[str, Sequence[Batch]]]:
        return (yield from super()._take_over(name, replace(noted, sender=name) if noted else None))


class NameOfOnesOwn(Recovery):
    """Gives each attempt's sender a name of its own, which fences nobody."""

    def _sender_name(self, fence: Fence) -> Steps[str]:
        name = yield from super()._sender_name(fence)
        return f"{name}.{fence.token}.{fence.epoch}"

    def _former_checkpoint(self, noted: TransactionalLane) -> Steps[Sequence[Batch]]:
        return (yield from self._read_checkpoint(noted.sender, noted))


class RawName(OwnName):
    """The same under the name that the configuration has for the table, as it is written there."""

    def _sender_name(self, fence: Fence) -> Steps[str]:
        yield from super()._sender_name(fence)
        return f"{self.outbox}.{fence.lane}.{fence.identity}"


class UnopenedFormer(Recovery):
    """Reads the checkpoint of the sender that is noted, and does not open it."""

    def _former_checkpoint(self, noted: TransactionalLane) -> Steps[Sequence[Batch]]:
        return (yield from self._read_checkpoint(noted.sender, noted))


# --- notes -----------------------------------------------------------------------------------------------


class FirstNoteOnly(Recovery):
    """Does not note that name or place have changed."""

    def _note(self, fence: Fence, noted: TransactionalLane | None, note: TransactionalLane) -> Steps[None]:
        if noted is None:
            yield WriteNote(fence, note)


class Silent(Recovery):
    def _note(self, fence: Fence, noted: TransactionalLane | None, note: TransactionalLane) -> Steps[None]:
        yield from ()


class LateNote(Recovery):
    """Begins before the note is written."""

    def _note(self, fence: Fence, noted: TransactionalLane | None, note: TransactionalLane) -> Steps[None]:
        yield from _unawaited(super()._note(fence, noted, note), 0.1)


# --- lanes of old ----------------------------------------------------------------------------------------


class EarlyEnd(Recovery):
    """Ends the note of a former lane before its rows are purged."""

    def _recover_lane(self, lane: int) -> Steps[int]:
        fence, noted = yield from self._enter(lane)
        yield WriteNote(fence, None)
        if noted is None:
            return 0
        checkpoint = yield from self._former_checkpoint(noted)
        return (yield from self._purge(fence, checkpoint))


def early_look(lanes: int, holder: str, recovery: Callable[[int], Recovery]) -> Steps[TakenOver]:
    """Reads which lanes are to be recovered before the fence is raised: they may still write notes."""
    noted: Mapping[int, TransactionalLane] = yield ReadNotes()
    token: int = yield RaiseFence(lanes, holder)
    return TakenOver(token, (yield from recovery(token).recover(noted)))


class SameLanesOnly(Recovery):
    def _former(self, noted: Mapping[int, TransactionalLane]) -> list[int]:
        return [] if self.delivery is Delivery.EXACTLY_ONCE else super()._former(noted)


class SameModeOnly(Recovery):
    def _former(self, noted: Mapping[int, TransactionalLane]) -> list[int]:
        return super()._former(noted) if self.delivery is Delivery.EXACTLY_ONCE else []


class Impatient(Recovery):
    """Lets the lanes begin while it settles the former ones."""

    def recover(self, noted: Mapping[int, TransactionalLane]) -> Steps[dict[int, int]]:
        yield from _unawaited(super().recover(noted))
        return {}


def _unawaited(steps: Steps[Any], seconds: float = 0.0) -> Steps[None]:
    """Has the first request of ``steps`` carried out without waiting for it."""
    for request in steps:
        waits: Any = Unawaited(request, seconds)
        yield waits
        return
