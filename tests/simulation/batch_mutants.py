"""Deliberate bugs of exactly-once delivery: each breaks a rule of the protocol, of its statements or its lanes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from outbox_core.commands import Advance as AdvanceCommand
from outbox_core.commands import Park as ParkCommand
from outbox_core.commands import Publish
from outbox_core.config.settings import Delivery
from outbox_core.transaction import TransactionalMarkPurge
from outbox_sdk import Batch, Failure

from .advance import Advance
from .batch_lane import BatchLane
from .broker import Broker
from .database import FAILED, Change
from .mutant import Mutant, mutant
from .recovery import DONE, Outcome, Recovery, Settlement
from .requests import Reply
from .scenario import Mode
from .sender import TransactionalProducer
from .tables import Row
from .transactions import TransactionalId

# --- the broker side -----------------------------------------------------------------------------------


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


# --- the database side ---------------------------------------------------------------------------------


class VolatileMarks(Advance):
    def write(self, deleted: list[Change], marked: list[Change]) -> None:
        self.database.logged(deleted, durable=True)
        self.database.logged(marked, durable=False)


class VolatileDeletes(Advance):
    def write(self, deleted: list[Change], marked: list[Change]) -> None:
        self.database.logged(marked, durable=True)
        self.database.logged(deleted, durable=False)


class UnfencedAdvance(Advance):
    share_lock = False

    def held(self) -> bool:
        return True


class Watermark(Advance):
    def published(self) -> list[Row]:
        rows, (lane, lanes) = self.database.rows, (self.right.lane, self.right.lanes)
        last = max((batch.last for batch in self.finished), default=0)
        return [rows[n] for n in self.database.ids if n <= last and rows[n].bucket % lanes == lane]

    def keeps(self, row: Row) -> bool:
        return True


# --- the beginning -------------------------------------------------------------------------------------


class EarlyReader(Recovery):
    """Reads the marker before it opens the transactional id."""

    def open(self) -> None:
        self.producer.read_marker(self._keep)

    def _keep(self, marker: Sequence[Batch] | None | str) -> None:
        self._marker = marker
        super().open()

    def read(self) -> None:
        self.take(self._marker)


class WipedMarker(Recovery):
    """Writes the empty marker before what the former one names is purged."""

    def take(self, marker: Sequence[Batch] | None | str) -> None:
        proceed = super().take
        if isinstance(marker, str) or not marker:
            proceed(marker)
        else:
            self.producer.publish([], [], lambda failures: proceed(marker) if failures == [] else self.then(FAILED))


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


# --- the lane ------------------------------------------------------------------------------------------


class Trusting(BatchLane):
    def doubt(self, now: float) -> None:
        self.machine.published(now)


class Pessimist(BatchLane):
    def doubt(self, now: float) -> None:
        self.machine.aborted(now, [])


class Silent(BatchLane):
    def note(self) -> None:
        self._begin()


class EarlyFarewell(BatchLane):
    def is_done(self, now: float) -> bool:
        return self.group.leash.draining or super().is_done(now)


# --- the state machine ---------------------------------------------------------------------------------


class ShortMarker(TransactionalMarkPurge):
    def _next_to_publish(self, now: float) -> Publish | None:
        publish = super()._next_to_publish(now)
        return publish and replace(publish, marker=publish.marker[-1:])


class ReusedName(TransactionalMarkPurge):
    def _take_back(self, now: float, marked: Any, failures: Sequence[Failure]) -> None:
        super()._take_back(now, marked, failures)
        fresh = self._new_leader_id

        def reused() -> Any:
            self._new_leader_id = fresh
            return marked.batch.leader_id

        self._new_leader_id = reused


class Hurried(TransactionalMarkPurge):
    """Hands the next batch to the producer while the one before is not committed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ahead: deque[Any] = deque()

    def _next_to_publish(self, now: float) -> Publish | None:
        former, self._publishing = self._publishing, None
        publish = super()._next_to_publish(now)
        if publish is None:
            self._publishing = former
        elif former is not None:
            self._ahead.append(former)
            publish.marker[-1:-1] = [each.batch for each in self._ahead]
        return publish

    def _next_for_database(self, now: float) -> AdvanceCommand | ParkCommand | None:
        command = super()._next_for_database(now)
        if isinstance(command, AdvanceCommand):
            command.pending.extend(each.batch.leader_id for each in self._ahead)
        return command

    def _take_published(self) -> Any:
        return self._ahead.popleft() if self._ahead else super()._take_published()


class KeptBehind(TransactionalMarkPurge):
    """Publishes what was marked behind an aborted batch."""

    def _take_back(self, now: float, marked: Any, failures: Sequence[Failure]) -> None:
        behind = self._marked if self._marked is not marked else None
        super()._take_back(now, marked, failures)
        self._marked, self._abandon = behind, False


class TaillessBatchPark(TransactionalMarkPurge):
    """Resets the head of a parked key, and not what is behind it in the batch."""

    def _take_back(self, now: float, marked: Any, failures: Sequence[Failure]) -> None:
        super()._take_back(now, marked, failures)
        if self._park is not None:
            self._park = replace(self._park, ids=[poison.id for poison in self._park.poisons])


def _batches(name: str, says: str, invariants: str, budget: int, **parts: Any) -> Mutant:
    return mutant(name, says, invariants, budget, Mode.EXACTLY_ONCE, FIRST.get(name, 1), **parts)


def _switching(name: str, says: str, invariants: str, budget: int, **parts: Any) -> Mutant:
    return mutant(name, says, invariants, budget, Mode.SWITCHING, FIRST.get(name, 1), **parts)


FIRST: dict[str, int] = {}
"""Where the search begins, so that it is short."""

BATCH_MUTANTS: Sequence[Mutant] = (
    _batches("unfenced-producer", "Opening a lane's transactions does not fence its former producer.", "I6", 100,
             batch_producer=UnfencedProducer),
    _batches("early-marker", "The marker is read before the former producer is fenced.", "I6", 100,
             recovery=EarlyReader),
    _batches("wiped-marker", "The marker is emptied before what it names is purged.", "I6", 100,
             recovery=WipedMarker),
    _batches("ignored-marker", "What the marker names is not purged.", "I6", 40, recovery=MarkerIgnored),
    _batches("trusted-absence", "A marker that is missing is taken for an empty one.", "I6", 100,
             recovery=MissingMarkerTrusted),
    _batches("volatile-marks", "An advance does not wait until its marks are on the disk.", "I6", 100,
             advance=VolatileMarks),
    _batches("volatile-deletes", "An advance does not wait until its purges are on the disk.", "I6", 100,
             advance=VolatileDeletes),
    _batches("unfenced-advance", "An advance does not look at the fence.", "I4", 40, advance=UnfencedAdvance),
    _batches("watermark", "All rows up to a batch's last are purged, whatever their names.", "I1 I4", 40,
             advance=Watermark),
    _batches("short-marker", "A marker names only the batch that it is published with.", "I6", 100,
             batch_machine=ShortMarker),
    _batches("reused-name", "After an abort the next batch has the same name.", "I1 I2 I6 I9", 40,
             batch_machine=ReusedName),
    _batches("trusting-commit", "A commit of unknown outcome is taken for a success.", "I1 I8", 40,
             batch_lane=Trusting),
    _batches("pessimistic-commit", "A commit of unknown outcome is taken for an abort.", "I6", 40,
             batch_lane=Pessimist),
    _batches("hurried", "The next batch is published before the former is known to be committed.", "I1 I2", 40,
             batch_machine=Hurried),
    _batches("kept-behind", "What was marked behind an aborted batch is published.", "I2", 40,
             batch_machine=KeptBehind),
    _batches("tailless-batch", "A park leaves the tail of the key in the batch.", "I2 I9", 40,
             batch_machine=TaillessBatchPark),
    _batches("unsettled-lanes", "A leader with another number of lanes settles nothing.", "I6", 100,
             settlement=SameLanesOnly),
    _switching("unsettled-mode", "A leader of at-least-once delivery settles nothing.", "I6", 100,
               settlement=SameModeOnly),
    _switching("impatient", "Lanes begin while their leader settles the former ones.", "I6", 100,
               settlement=Impatient),
    _switching("silent", "A lane does not note that it publishes in transactions.", "I6", 100, batch_lane=Silent),
    _switching("early-farewell", "A lane that is to end takes its note back before it has settled.", "I6", 100,
               batch_lane=EarlyFarewell),
)  # fmt: skip
