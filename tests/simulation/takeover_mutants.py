"""Deliberate bugs in how exactly-once delivery begins: whom it fences, what it reads, what it settles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_core.config.settings import Delivery
from outbox_sdk import Batch

from .broker import Broker
from .database import FAILED
from .fencing import Transact
from .recovery import DONE, Outcome, Recovery, Settlement
from .requests import Reply
from .sender import TransactionalProducer
from .transactions import TransactionalId


class IdOfOnesOwn(TransactionalId):
    """Shares only the marker with the lane's other producers."""

    def __init__(self, broker: Broker, shared: TransactionalId) -> None:
        super().__init__(broker)
        self._shared = shared

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "marker" and "_shared" in self.__dict__:
            self._shared.marker = value
        super().__setattr__(name, value)

    def read_marker(self, reply: Reply) -> None:
        self._shared.read_marker(reply)


class UnfencedProducer(TransactionalProducer):
    _own: TransactionalId | None = None

    @property
    def identity(self) -> TransactionalId:
        if self._own is None:
            self._own = IdOfOnesOwn(self._broker, super().identity)
        return self._own


class UnfencedNote(Transact):
    def held(self) -> bool:
        return True


class EarlyReader(Recovery):
    """Reads the marker before it opens the transactional id."""

    def open(self) -> None:
        self.producer.read_marker(self._keep)

    def _keep(self, marker: Sequence[Batch] | str | None) -> None:
        self._marker = marker
        super().open()

    def read(self) -> None:
        self.take(self._marker)


class WipedMarker(Recovery):
    """Writes the empty marker before what the former one names is purged."""

    def take(self, marker: Sequence[Batch] | str | None) -> None:
        proceed = super().take
        if isinstance(marker, str) or not marker:
            proceed(marker)
        else:
            self.producer.publish(
                [], [], lambda failures: proceed(marker) if failures == [] else self.then(FAILED)
            )


class MarkerIgnored(Recovery):
    def heeded(self, marker: Sequence[Batch]) -> Sequence[Batch]:
        return []


class MissingMarkerTrusted(Recovery):
    def refuses(self) -> bool:
        return False


class SameLanesOnly(Settlement):
    def former(self, noted: dict[int, int]) -> list[int]:
        return [] if self.delivery is Delivery.EXACTLY_ONCE else super().former(noted)


class SameModeOnly(Settlement):
    def former(self, noted: dict[int, int]) -> list[int]:
        return super().former(noted) if self.delivery is Delivery.EXACTLY_ONCE else []


class Impatient(Settlement):
    """Lets the lanes begin while it settles the former ones."""

    def __init__(self, process: Any, token: int, then: Outcome) -> None:
        super().__init__(process, token, lambda _: None)
        then(DONE)
