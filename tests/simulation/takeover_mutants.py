"""Deliberate bugs in how exactly-once delivery begins: whom it fences, what it reads, what it settles.

They mutate ``outbox_core.delivery.recovery``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from outbox_api import DriverError, Fence, OutboxTable, TransactionalLane, TransactionalSender
from outbox_core.delivery.checkpoint import encode
from outbox_core.delivery.recovery import Recovered, Recovery, Servers, TakenOver, _InLog
from outbox_core.settings import Delivery

from .altered_recoveries import LocksLeftBehind, LocksUnseen, LocksUntold, PurgedWhereNamed
from .mutant import Mutant, breaks_batches, breaks_switching, under
from .scenario import PLACES, TABLES

Taken = tuple[TransactionalSender, _InLog]

# --- the order of steps ----------------------------------------------------------------------------------


class EarlyReader(Recovery):
    """Looks at what was attempted before it opens the sender."""

    def _take_over(self, servers: Any, name: str, noted: TransactionalLane | None) -> Taken:
        former = noted.sender if noted else name
        in_log = self._in_log(servers.table, servers.sender(former), former, noted)
        return servers.open_sender(name), in_log


class WipedCheckpoint(Recovery):
    """Writes an empty checkpoint before what the former one names is purged."""

    def _take_over(self, servers: Servers, name: str, noted: TransactionalLane | None) -> Taken:
        taken = super()._take_over(servers, name, noted)
        taken[0].publish([], encode([]))
        return taken


class CheckpointIgnored(Recovery):
    def _in_log(self, *arguments: Any) -> _InLog:
        super()._in_log(*arguments)
        return _InLog(())


class MissingCheckpointTrusted(Recovery):
    def _in_log(self, *arguments: Any) -> _InLog:
        try:
            return super()._in_log(*arguments)
        except DriverError as error:
            if error.retryable:
                raise
            return _InLog(())


# --- names and places ------------------------------------------------------------------------------------


class OwnPlace(Recovery):
    """Reads the checkpoint at its own place, and not where it is noted."""

    def _take_over(self, servers: Servers, name: str, noted: TransactionalLane | None) -> Taken:
        return super()._take_over(servers, name, replace(noted, location="") if noted else None)


class OwnName(Recovery):
    """Leaves alone the sender of another name that is noted."""

    def _take_over(self, servers: Servers, name: str, noted: TransactionalLane | None) -> Taken:
        return super()._take_over(servers, name, replace(noted, sender=name) if noted else None)


class UnopenedFormer(Recovery):
    """Reads the checkpoint of the sender that is noted, and does not open it."""

    def _open_former(self, servers: Any, noted: TransactionalLane) -> Taken:
        sender = servers.sender(noted.sender)
        return sender, self._in_log(servers.table, sender, noted.sender, noted)


class NameOfOnesOwn(UnopenedFormer):
    """Gives each attempt's sender a name of its own, which fences nobody."""

    def _sender_name(self, table: OutboxTable, fence: Fence) -> str:
        return f"{super()._sender_name(table, fence)}.{fence.token}.{fence.epoch}"


# --- notes -----------------------------------------------------------------------------------------------


class FirstNoteOnly(Recovery):
    """Does not note that name or place have changed."""

    def _note(
        self, table: OutboxTable, fence: Fence, noted: TransactionalLane | None, note: TransactionalLane
    ) -> None:
        if noted is None:
            table.set_transactional(fence, note)


class Silent(Recovery):
    def _note(self, *_: object) -> None:
        pass


class LateNote(Recovery):
    """Begins before the note is written."""

    def _note(self, table: Any, *arguments: Any) -> None:
        table.unawaited(partial(super()._note, table, *arguments), 0.1)


# --- lanes of old ----------------------------------------------------------------------------------------


class EarlyEnd(Recovery):
    """Ends the note of a former lane before its rows are purged."""

    def _recover_lane(self, servers: Servers, lane: int) -> Recovered:
        table = servers.table
        fence, noted = self._enter(table, lane)
        table.set_transactional(fence, None)
        if noted is None:
            return Recovered()
        _, (published, found, doubt) = self._open_former(servers, noted)
        return Recovered(table.advance(fence, [*published, *found], [], 0).purged, doubt)


def early_look(servers: Servers, lanes: int, holder: str, recovery: Callable[[int], Recovery]) -> TakenOver:
    """Reads which lanes are to be recovered before the fence is raised: they may still write notes."""
    noted = servers.table.transactional_lanes()
    token = servers.table.bump(lanes, holder)
    return TakenOver(token, recovery(token).recover(servers, noted))


class SameLanesOnly(Recovery):
    def _former(self, noted: Mapping[int, TransactionalLane]) -> list[int]:
        return [] if self.delivery is Delivery.EXACTLY_ONCE else super()._former(noted)


class SameModeOnly(Recovery):
    def _former(self, noted: Mapping[int, TransactionalLane]) -> list[int]:
        return super()._former(noted) if self.delivery is Delivery.EXACTLY_ONCE else []


class Impatient(Recovery):
    """Lets the lanes begin while it settles the former ones."""

    def recover(self, servers: Any, noted: Mapping[int, TransactionalLane]) -> dict[int, Recovered]:
        servers.unawaited(partial(super().recover, servers, noted))
        return {}


STALE: Mapping[str, Any] = {
    "places": PLACES, "processes": 3, "lanes": (1, 1, 1), "workers": (1, 1, 1), "lane_seconds": 0.15,
    "transactions_per_second": 80.0, "faults_per_second": 20.0, "slow": 0.1, "torn": 0.3,
}  # fmt: skip
"""A world in which lanes begin so often that some of them has read a note that is no longer true."""

TAKEOVER_MUTANTS: Sequence[Mutant] = (
    under("elector lies, frozen copies", workers=(1, 1), each=breaks_batches(
        "unfenced-producer", "Opening a lane's transactions does not fence its former producer.",
        "I6 checkpoint", recovery=NameOfOnesOwn)),
    under("elector lies, frozen copies", workers=(1, 1), each=breaks_batches(
        "early-checkpoint", "The checkpoint is read before the former producer is fenced.",
        "I6 checkpoint", recovery=EarlyReader)),
    under("database crashes, lossy network", slow=0.05, each=breaks_batches(
        "wiped-checkpoint", "The checkpoint is emptied before what it names is purged.", "I6 checkpoint",
        recovery=WipedCheckpoint)),
    breaks_batches("ignored-checkpoint", "What the checkpoint names is not purged.", "I6 checkpoint",
             recovery=CheckpointIgnored),
    under("forgotten checkpoints, database crashes", breaks_batches(
        "trusted-absence", "A checkpoint that is missing is taken for an empty one.", "I6 checkpoint",
        recovery=MissingCheckpointTrusted)),
    under("crashes", touched=0.5, each=breaks_batches(
        "locks-unseen", "A recovery writes an empty checkpoint though rows in the log were locked.",
        "I6 checkpoint", recovery=LocksUnseen)),
    under("crashes", touched=0.5, each=breaks_batches(
        "locks-untold", "A lane does not know of locked rows that its recovery has found.",
        "I6 checkpoint kept", recovery=LocksUntold)),
    under("crashes", touched=0.5, lanes=(4, 1), each=breaks_batches(
        "locks-left-behind", "The note of a former lane is ended while some of its rows are locked.",
        "I6 checkpoint", recovery=LocksLeftBehind)),
    under("handovers, elector lies, crashes", places=PLACES, each=breaks_batches(
        "own-place", "The checkpoint is read at the lane's own place, not where it is noted.",
        "I6 checkpoint", recovery=OwnPlace)),
    under("handovers, elector lies, crashes", tables=TABLES, each=breaks_batches(
        "own-name", "The former sender is left alone where its name was another.", "I6 checkpoint",
        recovery=OwnName)),
    under("elector lies, frozen copies", tables=TABLES, workers=(1, 1), each=breaks_batches(
        "unopened-former", "The checkpoint of a former sender is read while that may still publish.",
        "I6 checkpoint", recovery=UnopenedFormer)),
    under("handovers, crashes", places=PLACES, each=breaks_batches(
        "first-note-only", "A change of name or place is not noted.", "I6 checkpoint", first=40,
        recovery=FirstNoteOnly)),
    under("frozen recoveries, elector lies, slow database", **STALE, each=breaks_batches(
        "unfenced-checkpoint", "An empty checkpoint is written without a look at the fence.",
        "I6 checkpoint", first=30, recovery=PurgedWhereNamed)),
    under("elector lies", lanes=(4, 1), each=breaks_batches(
        "unsettled-lanes", "A leader with another number of lanes settles nothing.", "I6 checkpoint",
        recovery=SameLanesOnly)),
    breaks_switching("unsettled-mode", "A leader of at-least-once delivery settles nothing.", "I6 checkpoint",
               recovery=SameModeOnly),
    under("elector lies, slow database", lanes=(4, 1), each=breaks_switching(
        "impatient", "Lanes begin while their leader settles the former ones.", "I6 checkpoint",
        recovery=Impatient)),
    under("elector lies, crashes", breaks_switching(
        "silent", "A lane does not note that it publishes in transactions.", "I6 checkpoint",
        recovery=Silent)),
    under("late network, elector lies", breaks_switching(
        "late-note", "A lane publishes before it has noted that it does.", "I6 checkpoint", first=20,
        recovery=LateNote)),
    under("crashes, elector lies", lanes=(4, 1), lossy=0.05, each=breaks_batches(
        "early-end", "The note of a former lane is ended before its rows are purged.", "I6 checkpoint",
        recovery=EarlyEnd)),
    under("elector lies", lanes=(4, 1), slow=0.2, each=breaks_switching(
        "early-look", "A leader reads the notes of former lanes before it raises the fence.",
        "I6 checkpoint", take_over=early_look)),
)  # fmt: skip
