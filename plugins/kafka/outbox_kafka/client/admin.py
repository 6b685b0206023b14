"""Administers a cluster: waits until it can be reached, reads its configuration, creates topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
)
from outbox_api import DriverError
from outbox_api.base.finding import shortest

from outbox_kafka.client.clients import ClientLog
from outbox_kafka.client.errors import is_refusal
from outbox_kafka.client.files import present
from outbox_kafka.client.settings import bootstrap_servers, config_error
from outbox_kafka.client.tls import why_refused

CreateError = Callable[[str, KafkaError, Mapping[str, Any]], DriverError]
"""Creates an error from what failed, Kafka's error, and the settings, whose secrets stay out of it."""

_POLL_SECONDS = 0.5
"""Seconds of one request for metadata; connection errors are handled between two requests."""

_RETRY_SECONDS = 0.05
_BEHIND = frozenset(
    (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    )
)
"""What a broker says of a listed partition while it, or the client, does not know the latest yet: it was just
added, or its leader has moved. The client calls none of these retriable.
"""
_BROKER_DEFAULT = -1

LATEST = -1
EARLIEST = -2
NEWEST = -3
"""Instead of a time: the end of a partition, its beginning, and its record with the greatest timestamp. The
protocol has the same numbers.
"""

_SPECS = {
    LATEST: OffsetSpec.latest(),  # type: ignore[no-untyped-call]  # confluent-kafka leaves it out
    EARLIEST: OffsetSpec.earliest(),  # type: ignore[no-untyped-call]  # likewise
    NEWEST: OffsetSpec.max_timestamp(),  # type: ignore[no-untyped-call]  # likewise
}

_PRODUCER_ONLY = frozenset(
    {
        "acks",
        "delivery.report.only.error",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "request.required.acks",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""librdkafka's admin client is a producer, and would be held to these promises like any other."""


class KafkaAdmin:
    """An admin client that reports why it cannot reach the broker."""

    def __init__(self, settings: Mapping[str, Any], create_error: CreateError) -> None:
        self._settings = settings = present(settings)
        self._create_error = create_error
        self._errors: list[KafkaError] = []
        own = {name: value for name, value in settings.items() if name not in _PRODUCER_ONLY}
        try:
            self.client = AdminClient(own, error_cb=self._errors.append, logger=ClientLog())
        except KafkaException as error:
            raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret

    def wait_for_cluster(self, timeout: float) -> ClusterMetadata:
        """Returns the cluster's metadata, with at least one broker; a refusal ends the wait sooner."""
        deadline = time.monotonic() + timeout
        while True:
            error = KafkaError(KafkaError.BROKER_NOT_AVAILABLE)
            try:
                cluster = self.client.list_topics(timeout=_POLL_SECONDS)
                # A broker that has just restarted may not list any broker yet, not even itself.
                if cluster.brokers:
                    return cluster
            except KafkaException as caught:
                error = caught.args[0]
            self.client.poll(0)
            refusals = [each for each in self._errors if is_refusal(each)]
            if refusals or time.monotonic() > deadline:
                what = f"cannot reach Kafka at {bootstrap_servers(self._settings)}"
                if why := why_refused([each.str() for each in self._errors], self._settings):
                    what = f"{what}: {why}"
                raise self._create_error(what, (refusals or self._errors or [error])[0], self._settings)
            time.sleep(_RETRY_SECONDS)

    def round_trip(self, cluster: ClusterMetadata, timeout: float) -> float | None:
        """Returns the seconds of a round trip: the shortest of a few; ``None`` if there is no answer."""
        topics = [next(iter(cluster.topics))] if cluster.topics else []  # an answer about all may be long
        try:
            return shortest(lambda: self.client.list_topics(*topics, timeout=timeout))
        except KafkaException:
            return None

    def broker_config(self, cluster: ClusterMetadata, timeout: float) -> dict[str, str]:
        """Returns the configuration of one of the cluster's brokers, see :meth:`topic_config`."""
        return self._config(ConfigResource(ConfigResource.Type.BROKER, str(min(cluster.brokers))), timeout)

    def topic_config(self, topic: str, timeout: float) -> dict[str, str]:
        """Returns the configuration of a topic by name; settings without a value are left out.

        Raises Kafka's own errors, unlike the other methods.
        """
        return self._config(ConfigResource(ConfigResource.Type.TOPIC, topic), timeout)

    def sizes(self, topics: Sequence[str], timeout: float) -> dict[str, int]:
        """Returns ``max.message.bytes`` of those topics of which the broker tells it."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        found = {}
        for resource, future in self.client.describe_configs(resources, request_timeout=timeout).items():
            with suppress(KafkaException, KeyError):  # not every service has it
                found[resource.name] = int(future.result()["max.message.bytes"].value)
        return found

    def offsets(
        self, topics: Collection[str], when: int, timeout: float, *, complete: bool = True
    ) -> dict[tuple[str, int], ListOffsetsResultInfo]:
        """Returns an offset of each partition, as readers of uncommitted records see it.

        Args:
            topics: The topics; those that do not exist are left out.
            when: That of the first record of this time or a later one, in milliseconds since the epoch;
                or ``LATEST``, ``EARLIEST``, or ``NEWEST``, which needs Kafka 3.0.
            timeout: Seconds to wait, also for partitions that have no leader.
            complete: Whether it is an error if some have none for so long; otherwise they are left out.

        Returns:
            Topic and partition → offset and timestamp. The offset is -1 if there is no such record; a
            timestamp has only the record of a time, or the newest.

        Raises:
            DriverError: The broker cannot be reached or refuses.
        """
        if not topics:
            return {}
        deadline, found = time.monotonic() + timeout, dict[tuple[str, int], ListOffsetsResultInfo]()
        known = self.wait_for_cluster(timeout).topics
        places = [(topic, number) for topic in topics if topic in known for number in known[topic].partitions]
        while missing := [place for place in places if place not in found]:
            error = None
            futures = self.client.list_offsets(
                {
                    TopicPartition(*place): _SPECS.get(when) or OffsetSpec.for_timestamp(when)
                    for place in missing
                },
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=timeout,
            )
            for place, future in futures.items():
                try:
                    found[place.topic, place.partition] = future.result()
                except KafkaException as caught:
                    error = caught.args[0]
            if error is not None:
                over = time.monotonic() > deadline
                passes = error.retriable() or error.code() in _BEHIND
                if over and passes and not complete:
                    break
                if over or not passes:
                    raise self._create_error("cannot read the offsets of partitions", error, self._settings)
                time.sleep(_RETRY_SECONDS)
        return found

    def create_topics(
        self,
        topics: Sequence[str],
        partitions: int,
        timeout: float,
        *,
        config: Mapping[str, str] | None = None,
        what: str = "cannot create topic",
        cure: str = "",
    ) -> list[str]:
        """Creates topics, replicated as the broker does by default; returns those that did not exist.

        Before the topic's name, ``what`` begins the message of an error; ``cure`` ends it.
        """
        if not topics:
            return []
        wanted = [NewTopic(topic, partitions, _BROKER_DEFAULT, config=dict(config or {})) for topic in topics]
        created = []
        for topic, future in self.client.create_topics(wanted, operation_timeout=timeout).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    message = f"{what} '{topic}'{cure}"
                    raise self._create_error(message, error.args[0], self._settings) from error
            else:
                created.append(topic)
        return created

    def _config(self, resource: ConfigResource, timeout: float) -> dict[str, str]:
        [future] = self.client.describe_configs([resource], request_timeout=timeout).values()
        return {name: entry.value for name, entry in future.result().items() if entry.value is not None}
