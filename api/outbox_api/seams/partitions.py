"""What a publisher and its senders have in addition if topics have partitions, and more can be added.

The partition of a key changes with their number. So its records keep their order only if those that were sent
before are read before any is sent to its new partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Repartitioned(NamedTuple):
    """A topic that has another number of partitions than when records of a sender went there last."""

    topic: str
    before: int
    now: int


@runtime_checkable
class PartitionedSender(Protocol):
    """What a sender, transactional or not, has in addition; others leave it out.

    Called by the thread that sends, between two calls of the sender.
    """

    def refresh(self) -> None:
        """Takes nothing for certain that it knows of topics, as a pause has ended.

        Until the broker has told it anew, it sends no record of a topic, and chooses no partition: records
        fail, retryable, if the broker does not tell. :meth:`take_repartitioned` leaves out what was changed
        before.
        """
        ...

    def take_repartitioned(self) -> Sequence[Repartitioned]:
        """Returns the topics that were found changed since the last call; does not wait."""
        ...


class PartitionedTopic(Protocol):
    """The partitions of one topic, for who adds some. All methods raise a :class:`DriverError`."""

    def count(self) -> int:
        """Returns how many partitions it has; 0 if there is no such topic."""
        ...

    def groups(self) -> Sequence[str]:
        """Returns the groups of consumers of which the broker knows a position in the topic, sorted."""
        ...

    def ends(self) -> Mapping[int, int]:
        """Returns partition → where a consumer is that has read all; without partitions that are empty.

        What nobody reads is not waited for: aborted records, and the marks of transactions.
        """
        ...

    def unread(self, group: str, ends: Mapping[int, int]) -> int | None:
        """Returns about how many records a group has not read up to ``ends``, 0 if it has read all of them.

        ``None`` if the broker knows no position of it in the topic.
        """
        ...

    def grow(self, count: int) -> None:
        """Adds partitions, up to ``count``; returns once every broker tells of them. Idempotent."""
        ...


@runtime_checkable
class PartitionedPublisher(Protocol):
    """What a publisher has in addition; others leave it out."""

    def topic(self, name: str) -> PartitionedTopic:
        """Returns a topic, which need not exist; does not connect."""
        ...
