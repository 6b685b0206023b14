"""Deliberate bugs in what producers make of requests that were sent twice, and of doubtful acknowledgements.

The simulated producers and searches do as ``plugins/kafka/outbox_kafka`` does. A contradiction and a part of
a partition show only where a producer is used in doubt: both cures stand behind the first. So their mutants
are hunted where that is missing, and late ends commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outbox_api import MarkedRecord

from .broker import Packet, Producer
from .filling import UNPLACED
from .log import Publication
from .mutant import Mutant, breaks_batches, mutant, under
from .scenario import Mode
from .sender import TransactionalProducer
from .torn_mutants import TEARING
from .transactions import INVALID, TransactionalId


class UsedInDoubt(TransactionalProducer):
    def ended_twice(self) -> None:
        """Is used on."""


class CheckpointFirst(UsedInDoubt):
    """Is used on; no record is there before the checkpoint."""

    alone = 1.0


class ContradictionAborted(CheckpointFirst):
    """Takes a transaction that is not open for one of which nothing was committed."""

    def is_unknown(self, result: Any) -> bool:
        return result is not INVALID and super().is_unknown(result)

    def failed(self, result: Any) -> bool | None:
        return result is INVALID or super().failed(result)

    def rise(self, result: Any) -> Any:
        return self._epoch if result is INVALID else result


class UnplacedCommitted(TransactionalProducer):
    def failed(self, result: Any) -> bool | None:
        return result is not UNPLACED and super().failed(result)


class UnplacedDelivered(Producer):
    def _unplaced(self, packet: Packet) -> None:
        self._acknowledge(packet)


class LateCommits(TransactionalId):
    """Keeps no aborts: of these a producer that is used in doubt would not learn."""

    def keep(self, publication: Publication, *, commits: bool) -> None:
        if commits:
            super().keep(publication, commits=commits)


class WholePartitions(LateCommits):
    """Takes all records of a key for committed if any is."""

    def published(self, records: Sequence[MarkedRecord], seen: Sequence[int]) -> list[int]:
        keys = {(records[place].key, records[place].partition) for place in seen}
        return [record.id for record in records if (record.key, record.partition) in keys]


class ReplacedForgotten(TransactionalId):
    """Takes only those records for committed that are still in the log."""

    def published(self, records: Sequence[MarkedRecord], seen: Sequence[int]) -> list[int]:
        return [records[place].id for place in seen]


LATE: Mapping[str, Any] = {"repeated": 0.3, "keys": 4, "transactions_per_second": 100.0, "refused": 0.05}
"""A world in which many ends of transactions are sent twice, and some transactions are aborted."""

UNREFUSED = {**LATE, "refused": 0.0}
"""The same in which clients refuse no record: one that follows it must not be committed without it."""

SECOND_WALL = under("crashes", **UNREFUSED, each=breaks_batches(
    "late-commits", "Nothing: producers are used in doubt, and late ends commit.", "",
    batch_producer=CheckpointFirst, transactional_id=LateCommits))  # fmt: skip
"""A world without a bug that shows."""

LATE_MUTANTS: Sequence[Mutant] = (
    under("crashes", **LATE, each=breaks_batches(
        "used-in-doubt", "A producer is used on though an end of a transaction was sent twice.", "I1",
        batch_producer=UsedInDoubt)),
    under("crashes", **LATE, verifies=False, each=breaks_batches(
        "used-in-doubt-unverified", "The same with brokers that verify no transactions.", "I1",
        batch_producer=UsedInDoubt)),
    under("crashes", **UNREFUSED, each=breaks_batches(
        "contradiction-aborted", "A transaction that the broker does not know of is taken for aborted.",
        "I6 checkpoint", batch_producer=ContradictionAborted, transactional_id=LateCommits)),
    under("crashes", **UNREFUSED, each=breaks_batches(
        "whole-partitions", "All of a partition is taken for committed if any record of a key is.",
        "I1 checkpoint",
        batch_producer=CheckpointFirst, transactional_id=WholePartitions)),
    under("crashes", **TEARING, replaced=0.5, each=breaks_batches(
        "replaced-forgotten", "A record that a later one has replaced is taken for aborted.", "I6 checkpoint",
        transactional_id=ReplacedForgotten)),
    under("crashes", each=mutant(
        "unplaced-delivered", "An acknowledgement without an offset is taken for one.", "I1 I2", 40,
        Mode.AT_LEAST_ONCE, producer=UnplacedDelivered), unready=0.5, transactions_per_second=100.0),
    under("crashes", unready=0.5, transactions_per_second=100.0, each=breaks_batches(
        "unplaced-committed", "A transaction with such an acknowledgement is committed.", "I1",
        batch_producer=UnplacedCommitted)),
)  # fmt: skip
