"""How a producer fills a transaction: it adds partitions one by one, and each takes its records in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from outbox_api import Failure, MarkedRecord

from .log import CHECKPOINTS, Publication
from .requests import TIMED_OUT
from .transactions import DONE

if TYPE_CHECKING:
    from .sender import TransactionalProducer

UNPLACED = "acknowledged without an offset"
"""What the client reports of records whose request was refused, and is out of order when it is repeated."""


class Filling:
    """What is under way of a transaction: its checkpoint, and its records by partition.

    The records of a partition leave in one request or in several, so a late end may find some of them there.

    Args:
        producer: Whose it is.
        publication: The transaction.
        parts: Partition → its records.
        troubles: The records that were refused, by their ids, and those that are not delivered.

    Attributes:
        lost: Whether the transaction is no longer the producer's, or is not open at the broker.
        is_cut: Whether a request was not answered in time, so that the epoch must rise with an abort.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        publication: Publication,
        parts: Mapping[int, list[MarkedRecord]],
        troubles: dict[int, Failure],
    ) -> None:
        self.troubles = troubles
        self.lost = self.is_cut = False
        self._producer = producer
        self._publication = publication
        self._parts = parts
        self._left = len(parts) + 1
        self._waiting: Sequence[int] = ()

    def start(self, checkpoint: str, then: Callable[[], None], *, alone: bool) -> None:
        """Sends the checkpoint, and the records after it or beside it.

        Args:
            checkpoint: The checkpoint.
            then: Called once all are answered.
            alone: Whether the records wait for the checkpoint.
        """
        self._checkpoint, self._then = checkpoint, then
        others = list(self._parts)
        if alone:
            self._waiting = others
            self._add([CHECKPOINTS])
        else:
            others.insert(self._producer.chance.randint(0, len(others)), CHECKPOINTS)
            self._add(others)

    def _add(self, partitions: Sequence[int]) -> None:
        """Adds partitions, one after the other."""
        if not partitions:
            return
        partition, *others = partitions

        def added(result: Any) -> None:
            if result is DONE and partition != CHECKPOINTS:
                self._append(partition)
            elif result is DONE:
                self._name()
            elif partition == CHECKPOINTS:
                self._named(result)
            else:
                self._answered(partition, self._parts[partition], result)
                self._part_over()
            self._add(others)

        identity, publication = self._producer.identity, self._publication
        self._producer.ask(partial(identity.add, publication, partition), added)

    def _name(self) -> None:
        identity, publication = self._producer.identity, self._publication
        self._producer.ask(partial(identity.name, publication, self._checkpoint), self._named)

    def _named(self, result: Any) -> None:
        """Takes what came of the checkpoint: without it the records that wait for it never leave."""
        self._answered(CHECKPOINTS, (), result)
        waiting, self._waiting = self._waiting, ()
        if result is DONE:
            self._add(waiting)
        else:
            self._left -= len(waiting)
        self._part_over()

    def _append(self, partition: int) -> None:
        """Sends the records of a partition, request by request."""
        requests = self._requests(self._parts[partition])
        skipped = requests.pop(0) if len(requests) > 1 and self._producer.is_unready(partition) else []

        def go_on() -> None:
            if not requests:
                if skipped:
                    self._answered(partition, skipped, UNPLACED)
                self._part_over()
                return
            records = requests.pop(0)
            identity, publication = self._producer.identity, self._publication
            self._producer.ask(
                partial(identity.append, publication, partition, records), partial(answered, records)
            )

        def answered(records: Sequence[MarkedRecord], result: Any) -> None:
            self._answered(partition, records, result)
            if result is not DONE:
                self._answered(partition, [each for others in requests for each in others], result)
                requests.clear()
            go_on()

        go_on()

    def _requests(self, records: Sequence[MarkedRecord]) -> list[Sequence[MarkedRecord]]:
        chance = self._producer.chance
        if chance.random() < 0.5:
            return [records]
        cuts = [0, *(place for place in range(1, len(records)) if chance.random() < 0.5), len(records)]
        return [records[first:end] for first, end in pairwise(cuts)]

    def _answered(self, partition: int, records: Sequence[MarkedRecord], result: Any) -> None:
        """Takes what came of records, or of the checkpoint."""
        failed = self._producer.failed(result)
        self.lost = self.lost or failed is None or (failed and partition == CHECKPOINTS)
        self.is_cut = self.is_cut or result is TIMED_OUT
        if failed:
            self.troubles.update((each.id, Failure(each, str(result), retryable=True)) for each in records)

    def _part_over(self) -> None:
        self._left -= 1
        if not self._left:
            self._then()
