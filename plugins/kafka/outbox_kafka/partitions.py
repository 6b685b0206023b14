"""The partitions of a topic, and how far groups of consumers have read them; adds some."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    BrokerMetadata,
    NewPartitions,
)
from outbox_api import AccessDenied, DriverError

from outbox_kafka.client.admin import EARLIEST, LATEST, KafkaAdmin
from outbox_kafka.errors import driver_error, is_unauthorized, reason
from outbox_kafka.log_reader import COMMITTED, LogReader, Partition, Range

_TIMEOUT: Final = 10.0
_SHOWN_SECONDS: Final = 60.0
"""Seconds in which every broker has to tell of new partitions."""

_RETRY_SECONDS: Final = 0.1
_NAME: Final = "outbox.partitions"
_FURTHER: Final = 10
"""How many times as far back each further search begins for the last record of a partition."""

_UNSTABLE: Final = KafkaError.UNSTABLE_OFFSET_COMMIT
_BOOTSTRAP: Final = ("bootstrap.servers", "metadata.broker.list")


class _Positions(Protocol):
    topic_partitions: Sequence[Any]


class KafkaTopic:
    """See :class:`outbox_api.PartitionedTopic`."""

    def __init__(self, settings: Mapping[str, Any], name: str) -> None:
        self._settings = settings
        self._name = name
        self._client: KafkaAdmin | None = None

    def count(self) -> int:
        """Returns how many partitions it has."""
        return _count(self._admin, self._name)

    def groups(self) -> Sequence[str]:
        """Returns the groups that have committed offsets; those that this client may not see are left out."""
        try:
            listed = self._admin.client.list_consumer_groups(request_timeout=_TIMEOUT).result().valid
        except KafkaException as caught:
            raise self._error("cannot list the groups of consumers", caught) from caught
        asked = {each.group_id: self._ask(each.group_id) for each in listed}
        found = []
        for group, future in asked.items():
            try:
                if self._committed(future):
                    found.append(group)
            except KafkaException:  # say, one that may not be read, or was deleted meanwhile
                continue
        return sorted(found)

    def ends(self) -> Mapping[int, int]:
        """Returns where readers of committed records are that have read all.

        The offset at the end of a partition is not it: a reader may stay before the mark of a transaction, as
        it commits what is behind its last record.
        """
        ends = self._offsets(LATEST)
        earliest = self._offsets(EARLIEST)
        left = {place: end for place, end in ends.items() if end > earliest[place]}
        reader, found, reach = LogReader(self._settings, _NAME, _TIMEOUT), dict[int, int](), 1
        while left:
            ranges = {place: Range(max(earliest[place], end - reach), end) for place, end in left.items()}
            for message in reader.read(ranges, COMMITTED):
                found[message.partition() or 0] = (message.offset() or 0) + 1
            left = {
                place: end
                for place, end in left.items()
                if place[1] not in found and ranges[place].start > earliest[place]
            }
            reach *= _FURTHER
        return found

    def unread(self, group: str, ends: Mapping[int, int]) -> int | None:
        """Returns how many offsets a group has not committed up to ``ends``; ``None`` if it has none here."""
        try:
            committed = self._committed(self._ask(group))
        except KafkaException as caught:
            raise self._error(f"cannot read the offsets of group '{group}'", caught) from caught
        if not committed:
            return None
        earliest = self._offsets(EARLIEST)
        return sum(
            max(0, end - max(committed.get(number, 0), earliest.get((self._name, number), 0)))
            for number, end in ends.items()
        )

    def grow(self, count: int) -> None:
        """Adds partitions, and waits until every broker tells of them, and each has a leader."""
        admin = self._admin
        if _count(admin, self._name) < count:
            wanted = [NewPartitions(self._name, count)]
            [future] = admin.client.create_partitions(wanted, operation_timeout=_TIMEOUT).values()
            try:
                future.result()
            except KafkaException as caught:
                raise self._error(f"cannot add partitions to topic '{self._name}'", caught) from caught
        deadline = time.monotonic() + _SHOWN_SECONDS
        brokers = list(admin.wait_for_cluster(_TIMEOUT).brokers.values())
        while brokers:
            behind = brokers.pop()
            while (shown := _count(self._at(behind), self._name, led=True)) != count:
                if time.monotonic() > deadline:
                    what = f"broker {behind.id} tells of {shown} partitions with a leader, not of {count}"
                    raise DriverError(f"topic '{self._name}': {what}; repeat the command", retryable=True)
                time.sleep(_RETRY_SECONDS)
        self._offsets(LATEST)  # of the leaders themselves, which are asked again until they know

    @property
    def _admin(self) -> KafkaAdmin:
        if self._client is None:
            self._client = KafkaAdmin(self._settings, driver_error)
        return self._client

    def _at(self, broker: BrokerMetadata) -> KafkaAdmin:
        """Returns a new client that knows one broker only, and so asks it first."""
        rest = {name: value for name, value in self._settings.items() if name not in _BOOTSTRAP}
        address = f"{broker.host}:{broker.port}"
        return KafkaAdmin({**rest, _BOOTSTRAP[0]: address}, driver_error)

    def _offsets(self, when: int) -> Mapping[Partition, int]:
        found = self._admin.offsets([self._name], when, _TIMEOUT)
        return {place: each.offset for place, each in found.items()}

    def _ask(self, group: str) -> Future[_Positions]:
        wanted = [ConsumerGroupTopicPartitions(group)]
        asked = self._admin.client.list_consumer_group_offsets(
            wanted, require_stable=True, request_timeout=_TIMEOUT
        )
        return asked[group]

    def _committed(self, future: Future[_Positions]) -> Mapping[int, int]:
        """Returns partition → offset; 0 for one that is being committed in a transaction, and not told."""
        return {
            each.partition: max(each.offset, 0)
            for each in future.result().topic_partitions
            if each.topic == self._name
            and (each.offset >= 0 or (each.error and each.error.code() == _UNSTABLE))
        }

    def _error(self, what: str, caught: KafkaException) -> DriverError:
        error: KafkaError = caught.args[0]
        if is_unauthorized(error):
            return AccessDenied(f"{what}: {reason(error, self._settings)}")
        return driver_error(what, error, self._settings)


def _count(admin: KafkaAdmin, topic: str, *, led: bool = False) -> int:
    """Returns how many partitions a topic has, or how many of them have a leader."""
    known = admin.wait_for_cluster(_TIMEOUT).topics
    found = known[topic].partitions.values() if topic in known else ()
    return sum(not led or each.leader >= 0 for each in found)
