"""Deliberate bugs in what becomes of an attempt whose outcome is unknown, as brokers may tear transactions.

They mutate ``outbox_core.delivery.recovery`` and ``outbox_core.delivery.exactly_once``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outbox_api import Found, MarkedRecord, OutboxTable, TransactionalLane, TransactionalSender
from outbox_core.delivery.checkpoint import decode, encode
from outbox_core.delivery.commands import Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.recovery import Recovery, Servers, _InLog
from outbox_core.settings import Undecided

from .altered_recoveries import Altered
from .mutant import Mutant, breaks_batches, breaks_switching, under
from .scenario import TABLES

# --- what is concluded from what was found ---------------------------------------------------------------


class Concluding(Recovery):
    """Takes something else for found than what was."""

    def conclude(self, ids: Sequence[int], found: Found) -> Found:
        raise NotImplementedError

    def _in_log(self, table: OutboxTable, sender: TransactionalSender, *arguments: Any) -> _InLog:
        def find(records: Sequence[MarkedRecord], trace: str) -> Found:
            return self.conclude([record.id for record in records], sender.find(records, trace))

        return super()._in_log(table, Altered(sender, find=find), *arguments)


class AttemptTrusted(Concluding):
    def conclude(self, ids: Sequence[int], found: Found) -> Found:
        return Found(ids)


class AttemptDistrusted(Concluding):
    def conclude(self, ids: Sequence[int], found: Found) -> Found:
        return Found([])


class FirstForAll(Concluding):
    def conclude(self, ids: Sequence[int], found: Found) -> Found:
        return Found(ids if ids[0] in found.published else [])


class AnyForAll(Concluding):
    def conclude(self, ids: Sequence[int], found: Found) -> Found:
        return Found(ids if found.published else [])


class UndecidedForgotten(Concluding):
    def conclude(self, ids: Sequence[int], found: Found) -> Found:
        return Found(found.published)


@dataclass(frozen=True)
class UndecidedPurged(Recovery):
    undecided: Undecided = Undecided.PURGE


# --- what is looked at, and when -------------------------------------------------------------------------


class PublishedForgotten(Recovery):
    """Purges what it has found of the attempt only."""

    def _in_log(self, *arguments: Any) -> _InLog:
        return super()._in_log(*arguments)._replace(published=())


class FormerUnlooked(Recovery):
    """Looks for no attempt of a former lane, or of a sender of another name."""

    def _open_former(self, servers: Servers, noted: TransactionalLane) -> tuple[TransactionalSender, _InLog]:
        sender = servers.open_sender(noted.sender)
        attempt = sender.attempt(noted.location)
        return sender, _InLog(decode(attempt.checkpoint).published if attempt else ())


class EmptiedBefore(Recovery):
    """Empties the checkpoint before it looks for the attempt."""

    def _in_log(self, table: OutboxTable, sender: TransactionalSender, *arguments: Any) -> _InLog:
        def find(records: Sequence[MarkedRecord], trace: str) -> Found:
            sender.publish([], encode([]))
            return sender.find(records, trace)

        return super()._in_log(table, Altered(sender, find=find), *arguments)


# --- what the checkpoint says of the attempt -------------------------------------------------------------


class Unattempted(SelectPublishPurge):
    def next_to_publish(self, now: float) -> Publish | None:
        publish = super().next_to_publish(now)
        return publish and publish._replace(checkpoint=encode(self._in_log()))


class AttemptedIsPublished(SelectPublishPurge):
    """Says of the batch that it is in the log, as versions before 3 did."""

    def next_to_publish(self, now: float) -> Publish | None:
        publish = super().next_to_publish(now)
        if publish is None or self._publishing is None:
            return publish
        return publish._replace(checkpoint=encode([*self._in_log(), self._publishing.batch]))


TEARING: Mapping[str, Any] = {"torn": 0.2, "keys": 8, "transactions_per_second": 100.0}
"""A world in which the broker tears many transactions, which have records in several partitions."""

TORN_MUTANTS: Sequence[Mutant] = (
    under("crashes", **TEARING, each=breaks_batches(
        "attempt-trusted", "A recovery deletes all of an attempt.", "I1 checkpoint",
        recovery=AttemptTrusted)),
    under("crashes", **TEARING, each=breaks_batches(
        "attempt-distrusted", "A recovery deletes nothing of an attempt.", "I6 checkpoint",
        recovery=AttemptDistrusted)),
    under("crashes", **TEARING, each=breaks_batches(
        "first-for-all", "An attempt is taken for committed if its first record is.", "I1 I6 checkpoint",
        recovery=FirstForAll)),
    under("crashes", **TEARING, each=breaks_batches(
        "any-for-all", "An attempt is taken for committed if any of its records is.", "I1 checkpoint",
        recovery=AnyForAll)),
    under("crashes, failing deliveries", blind=0.5, each=breaks_batches(
        "undecided-forgotten", "What the log does not tell of is published again.", "I6 checkpoint",
        recovery=UndecidedForgotten)),
    under("crashes, failing deliveries", blind=0.5, each=breaks_batches(
        "undecided-purged", "What the log does not tell of is deleted.", "I1 I8 checkpoint",
        recovery=UndecidedPurged)),
    under("crashes, slow database", **TEARING, touched=0.5, each=breaks_batches(
        "published-forgotten", "What was in the log before an attempt is forgotten.", "I6 checkpoint",
        recovery=PublishedForgotten)),
    under("handovers, elector lies, crashes", **TEARING, tables=TABLES, each=breaks_batches(
        "former-unlooked", "Nobody looks for the attempt of a sender of another name.", "I6 checkpoint",
        recovery=FormerUnlooked)),
    under("elector lies, crashes", **TEARING, lanes=(4, 1), each=breaks_batches(
        "lane-unlooked", "Nobody looks for the attempt of a former lane.", "I6 checkpoint",
        recovery=FormerUnlooked)),
    under("elector lies, crashes", **TEARING, each=breaks_switching(
        "mode-unlooked", "The same, where lanes of another mode take over.", "I6 checkpoint",
        recovery=FormerUnlooked)),
    under("lossy network, crashes", **TEARING, each=breaks_batches(
        "emptied-before", "The checkpoint is emptied before its attempt is looked for.", "I6 checkpoint",
        recovery=EmptiedBefore)),
    under("crashes", **TEARING, each=breaks_batches(
        "unattempted", "A checkpoint does not name the batch that it is published with.", "I6 checkpoint",
        batch_machine=Unattempted)),
    under("crashes", **TEARING, each=breaks_batches(
        "attempted-is-published", "A checkpoint names the batch that it is published with as in the log.",
        "I1 checkpoint", batch_machine=AttemptedIsPublished)),
)  # fmt: skip
