"""Simulated senders that break a rule of what they tell of the last attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from outbox_api import Found, MarkedRecord

from .log import CHECKPOINTS, Content, Publication
from .mutant import Mutant, breaks_batches, under
from .torn_mutants import TEARING
from .transactions import TransactionalId


class CommittedAttempt(TransactionalId):
    def last(self, location: str) -> Publication | None:
        committed = [each for each in self.attempts.get(location, ()) if each.fates.get(CHECKPOINTS)]
        return committed[-1] if committed else None


class CheckpointTells(TransactionalId):
    """Lets the fate of a checkpoint decide, if it is this one."""

    whole: Sequence[bool] = ()

    def found(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        committed = self._broker.log.has_checkpoint(trace)
        if committed in self.whole:
            return Found([record.id for record in records] if committed else [])
        return super().found(records, trace)


class BothTrusted(CheckpointTells):
    whole = (True, False)


class CommittedTrusted(CheckpointTells):
    whole = (True,)


class AbortedTrusted(CheckpointTells):
    whole = (False,)


class TracelessSearch(TransactionalId):
    """Takes an equal record of any other transaction for that of the attempt."""

    def committed(self, trace: str) -> Counter[Content]:
        return self._broker.log.committed(None)


class ShortSearch(TransactionalId):
    """Looks into one partition only."""

    def committed(self, trace: str) -> Counter[Content]:
        parts = self._broker.log.transactions[trace][0].parts
        keys = {content[0] for _, content in parts[min(parts)]} if parts else set()
        found = super().committed(trace)
        return Counter({content: times for content, times in found.items() if content[0] in keys})


BROKEN_SENDERS: Sequence[Mutant] = (
    under("crashes", **TEARING, each=breaks_batches(
        "committed-attempt", "A sender reads the last checkpoint that is committed.", "I6 checkpoint",
        transactional_id=CommittedAttempt)),
    under("crashes", **TEARING, each=breaks_batches(
        "checkpoint-tells", "An attempt is in the log if its checkpoint is.", "I1 I6 checkpoint",
        transactional_id=BothTrusted)),
    under("crashes", **TEARING, each=breaks_batches(
        "committed-trusted", "An attempt whose checkpoint is committed is taken for committed.",
        "I1 checkpoint",
        transactional_id=CommittedTrusted)),
    under("crashes", **TEARING, each=breaks_batches(
        "aborted-trusted", "An attempt whose checkpoint is aborted is taken for aborted.", "I6 checkpoint",
        transactional_id=AbortedTrusted)),
    under("crashes", **TEARING, each=breaks_batches(
        "traceless-search", "An equal record of another transaction is taken for that of an attempt.",
        "I1 checkpoint",
        transactional_id=TracelessSearch)),
    under("crashes", **TEARING, each=breaks_batches(
        "short-search", "A sender looks for an attempt in one partition only.", "I6 checkpoint",
        transactional_id=ShortSearch)),
)  # fmt: skip
