"""Deliberate bugs in how exactly-once delivery begins: whom it fences, what it reads, what it settles.

Those that concern the order of steps mutate ``outbox_core.delivery.recovery``, which ships.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from outbox_core.config.settings import Delivery
from outbox_core.delivery.recovery import Recovery
from outbox_core.delivery.requests import EmptyMarker, OpenSender, PurgeBatches, Steps, WriteNote
from outbox_sdk import Batch, DriverError, Fence, Transacting

from .broker import Broker
from .fencing import WriteNote as NoteStatement
from .recovery import Unawaited
from .sender import TransactionalProducer
from .transactions import TransactionalId

# --- database and broker ---------------------------------------------------------------------------------


class IdOfOnesOwn(TransactionalId):
    """Shares only the markers with the lane's other producers."""

    def __init__(self, broker: Broker, shared: TransactionalId) -> None:
        super().__init__(broker)
        self.markers = shared.markers


class UnfencedProducer(TransactionalProducer):
    _own: TransactionalId | None = None

    @property
    def identity(self) -> TransactionalId:
        if self._own is None:
            self._own = IdOfOnesOwn(self._broker, super().identity)
        return self._own


class UnfencedNote(NoteStatement):
    def held(self) -> bool:
        return True


# --- the order of steps ----------------------------------------------------------------------------------


class EarlyReader(Recovery):
    """Reads the marker before it opens the sender."""

    def _take_over(self, name: str, noted: Transacting | None) -> Steps[tuple[str, Sequence[Batch]]]:
        marker = yield from self._read_marker(noted.sender if noted else name, noted)
        return (yield OpenSender(name)), marker


class WipedMarker(Recovery):
    """Writes the empty marker before what the former one names is purged."""

    def _replace_marker(self, fence: Fence, name: str, marker: Sequence[Batch]) -> Steps[int]:
        yield EmptyMarker(name)
        return (yield from self._purge(fence, marker))


class MarkerIgnored(Recovery):
    def _purge(self, fence: Fence, marker: Sequence[Batch]) -> Steps[int]:
        return (yield from super()._purge(fence, []))


class MissingMarkerTrusted(Recovery):
    def _read_marker(self, name: str, noted: Transacting | None) -> Steps[Sequence[Batch]]:
        try:
            return (yield from super()._read_marker(name, noted))
        except DriverError as error:
            if error.retryable:
                raise
            return []


class PurgedWhereNamed(Recovery):
    """Checks the fence only where the marker names something, and else writes an empty one unchecked."""

    def _purge(self, fence: Fence, marker: Sequence[Batch]) -> Steps[int]:
        return (yield from super()._purge(fence, marker)) if marker else 0


class PurgedOnce(Recovery):
    """Takes a purge that was cut short for complete."""

    def _purge(self, fence: Fence, marker: Sequence[Batch]) -> Steps[int]:
        purged: int = yield PurgeBatches(fence, marker)
        return purged


# --- names and places ------------------------------------------------------------------------------------


class OwnPlace(Recovery):
    """Reads the marker at its own place, and not where it is noted."""

    def _take_over(self, name: str, noted: Transacting | None) -> Steps[tuple[str, Sequence[Batch]]]:
        return (yield from super()._take_over(name, replace(noted, place="") if noted else None))


class OwnName(Recovery):
    """Leaves alone the sender of another name that is noted."""

    def _take_over(self, name: str, noted: Transacting | None) -> Steps[tuple[str, Sequence[Batch]]]:
        return (yield from super()._take_over(name, replace(noted, sender=name) if noted else None))


class RawName(OwnName):
    """The same under the name that the configuration has for the table, as it is written there."""

    def _sender_name(self, fence: Fence) -> Steps[str]:
        yield from super()._sender_name(fence)
        return f"{self.outbox}.{fence.lane}.{fence.identity}"


class UnopenedFormer(Recovery):
    """Reads the marker of the sender that is noted, and does not open it."""

    def _former_marker(self, noted: Transacting) -> Steps[Sequence[Batch]]:
        return (yield from self._read_marker(noted.sender, noted))


# --- notes -----------------------------------------------------------------------------------------------


class FirstNoteOnly(Recovery):
    """Does not note that name or place have changed."""

    def _note(self, fence: Fence, noted: Transacting | None, note: Transacting) -> Steps[None]:
        if noted is None:
            yield WriteNote(fence, note)


class Silent(Recovery):
    def _note(self, fence: Fence, noted: Transacting | None, note: Transacting) -> Steps[None]:
        yield from ()


class LateNote(Recovery):
    """Begins before the note is written."""

    def _note(self, fence: Fence, noted: Transacting | None, note: Transacting) -> Steps[None]:
        yield from _unawaited(super()._note(fence, noted, note), 0.1)


# --- lanes of old ----------------------------------------------------------------------------------------


class SameLanesOnly(Recovery):
    def _former(self, noted: Mapping[int, Transacting]) -> list[int]:
        return [] if self.delivery is Delivery.EXACTLY_ONCE else super()._former(noted)


class SameModeOnly(Recovery):
    def _former(self, noted: Mapping[int, Transacting]) -> list[int]:
        return super()._former(noted) if self.delivery is Delivery.EXACTLY_ONCE else []


class Impatient(Recovery):
    """Lets the lanes begin while it settles the former ones."""

    def settle(self, noted: Mapping[int, Transacting]) -> Steps[dict[int, int]]:
        yield from _unawaited(super().settle(noted))
        return {}


def _unawaited(steps: Steps[Any], seconds: float = 0.0) -> Steps[None]:
    """Has the first request of ``steps`` carried out without waiting for it."""
    for request in steps:
        waits: Any = Unawaited(request, seconds)
        yield waits
        return
