"""Creates missing topics, the checkpoints' among them, and looks up which this client may write to."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    AdminClient,
    ClusterMetadata,
    TopicDescription,
)
from outbox_api import MAX_CHECKPOINT, AccessDenied, DriverError

from outbox_kafka.client.admin import KafkaAdmin
from outbox_kafka.client.clients import LOGGER
from outbox_kafka.errors import driver_error, is_missing_topic, is_unauthorized, reason

_TIMEOUT = 10.0
MOCK: Final = "librdkafka's mock of a broker neither fences producers nor hides aborted records"


def create_missing(settings: Mapping[str, Any], topics: Sequence[str], partitions: int) -> list[str]:
    """Creates those of ``topics`` that are missing, replicated as the broker does by default."""
    admin = KafkaAdmin(settings, driver_error)
    existing = admin.wait_for_cluster(_TIMEOUT).topics
    missing = [topic for topic in dict.fromkeys(topics) if topic not in existing]
    return admin.create_topics(missing, partitions, _TIMEOUT)


def is_mock(cluster: ClusterMetadata) -> bool:
    """Returns whether the cluster is librdkafka's mock of one (``test.mock.num.brokers``)."""
    return str(cluster.cluster_id).startswith("mockCluster")


class Access(Enum):
    """What this client may do with a topic."""

    WRITABLE = auto()
    UNREADABLE = auto()
    """It may write, and may not read, which exactly-once delivery needs."""
    REFUSED = auto()
    MISSING = auto()
    HIDDEN = auto()
    """The broker does not tell."""


def look_up_access(
    admin: AdminClient, topics: Collection[str], timeout: float, *, reads: bool = False
) -> Mapping[str, Access]:
    """Asks the broker what this client may do with topics."""
    if not topics:
        return {}
    futures = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout
    )
    return {topic: _access(future, reads=reads) for topic, future in futures.items()}


def unwritable(settings: Mapping[str, Any], topics: Collection[str]) -> set[str]:
    """Returns those of ``topics`` that this client may not write to, as far as the broker tells."""
    found = look_up_access(KafkaAdmin(settings, driver_error).client, topics, _TIMEOUT)
    return {topic for topic, access in found.items() if access is Access.REFUSED}


def _access(future: Future[TopicDescription], *, reads: bool) -> Access:
    try:
        found = future.result()
    except KafkaException as caught:
        error = caught.args[0]
        if is_unauthorized(error):  # WRITE would include DESCRIBE
            return Access.REFUSED
        return Access.MISSING if is_missing_topic(error) else Access.HIDDEN
    granted = found.authorized_operations
    if found.is_internal:  # nobody may write to Kafka's own topics, whatever the permissions
        return Access.REFUSED
    if granted is None:
        return Access.HIDDEN
    if AclOperation.WRITE not in granted:
        return Access.REFUSED
    return Access.UNREADABLE if reads and AclOperation.READ not in granted else Access.WRITABLE


PARTITIONS: Final = 16
"""A lane that starts waits for the open transactions of other lanes in its partition, so there are many."""

_MESSAGE_BYTES: Final = MAX_CHECKPOINT + 10_000
"""The longest checkpoint, with its key and what Kafka's format adds."""

_CONFIG: Final = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(10 * MAX_CHECKPOINT),
    "message.timestamp.type": "LogAppendTime",  # so that a wrong clock is no reason to refuse a checkpoint
    "min.compaction.lag.ms": "600000",  # an aborted checkpoint stays until somebody has taken the lane over
}
_SMALL_SEGMENTS: Final = {"segment.bytes": str(16 * 1024 * 1024)}
"""The last segment is never compacted, so it is small, where the brokers permit that."""


_RETRY_SECONDS: Final = 0.05
"""Seconds between two requests, while the brokers tell each other of a new topic."""


class CheckpointTopic(NamedTuple):
    """The topic of the checkpoints."""

    cluster: str
    name: str
    partitions: int


class Unfit(NamedTuple):
    """Why a topic cannot keep checkpoints, and what to do."""

    message: str
    cure: str


def unfit(name: str, config: Mapping[str, str]) -> Unfit | None:
    """Returns why a topic with this configuration cannot keep checkpoints; ``None`` if it can."""
    wanted = {}
    policy = config.get("cleanup.policy")
    if policy != "compact":
        message = (
            f"topic '{name}' has cleanup.policy={policy}, so it deletes the checkpoint of a lane that is idle"
        )
        wanted["cleanup.policy"] = "compact"
    elif int(config.get("max.message.bytes", _MESSAGE_BYTES)) < _MESSAGE_BYTES:
        message = (
            f"topic '{name}' has max.message.bytes={config['max.message.bytes']}, too few for a checkpoint"
        )
        wanted["max.message.bytes"] = _CONFIG["max.message.bytes"]
    else:
        return None
    [(setting, value)] = wanted.items()
    cure = (
        "name a new topic in checkpointTopic; or, if nothing else uses this one, run kafka-configs --alter "
        f"--entity-type topics --entity-name {name} --add-config {setting}={value}"
    )
    return Unfit(message, cure)


def ensure_checkpoint_topic(settings: Mapping[str, Any], name: str) -> CheckpointTopic:
    """Creates the topic of the checkpoints if it is missing; checks that checkpoints are safe in it."""
    admin = KafkaAdmin(settings, driver_error)
    cluster = admin.wait_for_cluster(_TIMEOUT)
    if is_mock(cluster):
        raise DriverError(f"{MOCK}: exactly-once delivery needs a real Kafka", retryable=False)
    if name not in cluster.topics:
        _create(admin, name)
    deadline = time.monotonic() + _TIMEOUT
    while name not in cluster.topics and time.monotonic() < deadline:
        time.sleep(_RETRY_SECONDS)
        cluster = admin.wait_for_cluster(_TIMEOUT)
    problem = unfit(name, _config(admin, settings, name, deadline))
    if problem is not None:
        raise DriverError(f"{problem.message}; {problem.cure}", retryable=False)
    partitions = len(cluster.topics[name].partitions) if name in cluster.topics else 0
    if not partitions:
        raise DriverError(f"the brokers do not show the new topic '{name}' yet", retryable=True)
    return CheckpointTopic(str(cluster.cluster_id), name, partitions)


def _create(admin: KafkaAdmin, name: str) -> None:
    """Creates the topic of the checkpoints, with fewer settings of its own if brokers refuse some."""
    least = {"cleanup.policy": "compact"}
    for config in (_CONFIG | _SMALL_SEGMENTS, _CONFIG, least):
        try:
            admin.create_topics([name], PARTITIONS, _TIMEOUT, config=config)
        except DriverError as error:
            if error.retryable or config is least:
                raise
            LOGGER.info("%s; trying again with fewer settings", error)
        else:
            if config is least:
                LOGGER.warning("topic '%s' is compacted, but the brokers permit no other setting of it", name)
            return


def _config(admin: KafkaAdmin, settings: Mapping[str, Any], name: str, deadline: float) -> dict[str, str]:
    while True:
        try:
            return admin.topic_config(name, _TIMEOUT)
        except KafkaException as caught:
            error = caught.args[0]
        what = f"cannot see whether topic '{name}' keeps checkpoints"
        if is_unauthorized(error):
            message = f"{what}: {error.str()} ({error.name()}); grant DESCRIBE_CONFIGS on the topic"
            raise AccessDenied(message)
        if not is_missing_topic(error) or time.monotonic() > deadline:
            raise DriverError(f"{what}: {reason(error, settings)}", retryable=True)
        time.sleep(_RETRY_SECONDS)
