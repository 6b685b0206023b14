"""Checks the settings, the broker and its permissions, for ``outbox check``."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    ClusterMetadata,
)
from outbox_api import Finding, Level, OutboxError

from outbox_kafka.check_topics import dead_letter_findings, size_finding, topic_findings, topics_to_check
from outbox_kafka.check_transactions import (
    LOG_TOPIC,
    TransactionLog,
    mock_finding,
    settings_finding,
    transaction_findings,
    transactional_id_finding,
)
from outbox_kafka.client.admin import KafkaAdmin
from outbox_kafka.client.clients import ClientLog, Producer, transport_findings
from outbox_kafka.client.errors import describe
from outbox_kafka.client.files import present
from outbox_kafka.errors import driver_error, is_missing_topic, is_unsupported, reason
from outbox_kafka.settings import KafkaOptions, largest_message
from outbox_kafka.topics import Access, is_mock, look_up_access, unfit

_TIMEOUT: Final = 5.0
_MOST_TOPICS: Final = 500
"""Topics whose size limit is asked for."""
_IDEMPOTENCE: Final = "Kafka idempotence"

_SESSION_MS: Final = 10_000
"""Milliseconds of the election's session timeout by default."""


def findings(
    producer: Mapping[str, Any], shared: Mapping[str, Any], options: KafkaOptions, *, transactional: bool
) -> Sequence[Finding]:
    """Checks settings, connection, permissions, and the broker's configuration; raises nothing."""
    found = [_delivery_timeout(producer), *transport_findings(producer, "Kafka transport")]
    if transactional:
        found.append(settings_finding(producer))
    try:
        producer, shared = present(producer), present(shared)
        admin = KafkaAdmin(shared, driver_error)
        cluster = admin.wait_for_cluster(_TIMEOUT)
        trip = admin.round_trip(cluster, _TIMEOUT)
    except OutboxError as error:
        cure = "start Kafka, or correct bootstrap.servers and the security settings"
        return [*found, Finding(Level.ERROR, "Kafka broker", str(error), cure)]
    brokers = len(cluster.brokers)
    found.append(Finding(Level.OK, "Kafka broker", f"reached, one of {brokers}", round_trip=trip))
    if is_mock(cluster):
        return [*found, mock_finding()] if transactional else found
    found.extend(_unsupported(producer))
    found.extend(_permissions(admin, cluster, shared, options, reads=transactional))
    log = _transaction_log(admin, cluster) if transactional else TransactionLog()
    if transactional:
        found.append(_checkpoints(admin, shared, options.checkpoint_topic))
        if not log.missing:  # asking would create it
            found.append(transactional_id_finding(producer, _TIMEOUT))
    try:
        config = admin.broker_config(cluster, _TIMEOUT)
    except KafkaException as error:
        message = f"cannot be read: {reason(error.args[0], shared)}"
        cure = "grant DESCRIBE_CONFIGS on the cluster to see replication and size limits here"
        found.append(Finding(Level.WARNING, "Kafka broker settings", message, cure))
        return [*found, *_dead_letters(admin, shared, options)]
    found.extend(broker_findings(config, brokers))
    found.extend(_dead_letters(admin, shared, options, config))
    if "message.max.bytes" in config:
        topics = topics_to_check(options.topics, cluster.topics, options.checkpoint_topic)
        sizes = admin.sizes(topics[:_MOST_TOPICS], _TIMEOUT)
        found.append(size_finding(largest_message(producer), sizes, int(config["message.max.bytes"])))
    if transactional:
        found.extend(transaction_findings(config, brokers, producer, log))
    return found


def broker_findings(broker: Mapping[str, str], brokers: int) -> Sequence[Finding]:
    """Checks a broker's configuration; settings that it does not tell are not checked."""
    found = []
    if {"default.replication.factor", "min.insync.replicas"} <= broker.keys():
        found.append(_replication(broker, brokers))
    if broker.get("unclean.leader.election.enable") == "true":
        message = "a replica that is out of sync may become leader, which loses acknowledged records"
        cure = "set unclean.leader.election.enable=false on the brokers"
        found.append(Finding(Level.WARNING, "Kafka leader election", message, cure))
    if "auto.create.topics.enable" in broker:
        found.append(_creation(broker["auto.create.topics.enable"] == "true", broker))
    return found


def _dead_letters(
    admin: KafkaAdmin,
    shared: Mapping[str, Any],
    options: KafkaOptions,
    broker: Mapping[str, str] = MappingProxyType({}),
) -> Sequence[Finding]:
    """Checks the topics for dead letters, which need not be there: the table has what they lack."""
    access = look_up_access(admin.client, options.dead_letter_topics, _TIMEOUT)
    created = broker.get("auto.create.topics.enable") == "true"
    return list(dead_letter_findings(access, shared, created=created)) if access else []


def _checkpoints(admin: KafkaAdmin, shared: Mapping[str, Any], topic: str) -> Finding:
    subject = "Kafka checkpoints"
    try:
        config = admin.topic_config(topic, _TIMEOUT)
    except KafkaException as caught:
        error = caught.args[0]
        if is_missing_topic(error):
            return Finding(Level.OK, subject, f"the first lane creates topic '{topic}'")
        message = f"cannot see whether topic '{topic}' keeps them: {describe(error, shared)}"
        return Finding(Level.ERROR, subject, message, "grant DESCRIBE_CONFIGS on the topic")
    problem = unfit(topic, config)
    if problem is not None:
        return Finding(
            Level.ERROR, subject, f"{problem.message}: exactly-once delivery cannot start", problem.cure
        )
    return Finding(Level.OK, subject, f"topic '{topic}' keeps them")


def _transaction_log(admin: KafkaAdmin, cluster: ClusterMetadata) -> TransactionLog:
    try:
        config = admin.topic_config(LOG_TOPIC, _TIMEOUT)
    except KafkaException as error:
        return TransactionLog(missing=error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART)
    topic = cluster.topics.get(LOG_TOPIC)
    replicas = [len(partition.replicas) for partition in topic.partitions.values()] if topic else []
    min_in_sync = config.get("min.insync.replicas")
    return TransactionLog(min(replicas, default=None), None if min_in_sync is None else int(min_in_sync))


def _delivery_timeout(producer: Mapping[str, Any]) -> Finding:
    name = "delivery.timeout.ms" if "delivery.timeout.ms" in producer else "message.timeout.ms"
    value = int(producer[name])
    message = f"{name} is {value} ms"
    if 0 < value < _SESSION_MS:
        return Finding(Level.OK, "Kafka delivery timeout", message)
    message += "; a former leader could still deliver after its successor has started"
    return Finding(
        Level.WARNING,
        "Kafka delivery timeout",
        message,
        f"set it below the election's session timeout ({_SESSION_MS} ms unless changed), or leave it out",
    )


def _permissions(
    admin: KafkaAdmin,
    cluster: ClusterMetadata,
    shared: Mapping[str, Any],
    options: KafkaOptions,
    *,
    reads: bool,
) -> Sequence[Finding]:
    """Checks what this client may do with the cluster and with the topics of records."""
    topics = topics_to_check(options.topics, cluster.topics, options.checkpoint_topic)
    access = look_up_access(admin.client, topics, _TIMEOUT, reads=reads)
    try:
        description = admin.client.describe_cluster(
            include_authorized_operations=True, request_timeout=_TIMEOUT
        ).result()
    except KafkaException as error:
        message = f"cannot be looked up: {reason(error.args[0], shared)}"
        cure = "grant DESCRIBE on the cluster to see it here"
        found = [Finding(Level.WARNING, _IDEMPOTENCE, message, cure)]
        return [*found, *topic_findings(options.topics, access, shared, restricted=False)]
    operations = description.authorized_operations
    restricted = operations is None or AclOperation.ALTER not in operations
    return [
        _idempotence(operations, writes=Access.WRITABLE in access.values()),
        *topic_findings(options.topics, access, shared, restricted=restricted),
    ]


def _unsupported(producer: Mapping[str, Any]) -> Sequence[Finding]:
    """Returns an error if the brokers do not support idempotent producers."""
    states = list[str]()
    own = {
        "logger": ClientLog(),
        "error_cb": lambda _error: None,
        "statistics.interval.ms": "100",
        "stats_cb": lambda text: states.append(json.loads(text)["eos"]["idemp_state"]),
    }
    try:
        client, deadline = Producer({**producer, **own}), time.monotonic() + _TIMEOUT
        while "Assigned" not in states and time.monotonic() < deadline:
            client.poll(0.1)
    except KafkaException as caught:
        if is_unsupported(error := caught.args[0]):
            cure = "use brokers that support idempotent producers: nothing can be delivered by these"
            return [Finding(Level.ERROR, _IDEMPOTENCE, describe(error, producer), cure)]
    except OutboxError:  # of a file that has just changed, which the next check finds
        pass
    return []


def _idempotence(operations: Collection[AclOperation] | None, *, writes: bool) -> Finding:
    if operations is None:
        return Finding(Level.OK, _IDEMPOTENCE, "unknown; since Kafka 2.8 WRITE on a topic is enough")
    if AclOperation.IDEMPOTENT_WRITE in operations:
        return Finding(Level.OK, _IDEMPOTENCE, "permitted")
    if writes:
        return Finding(Level.OK, _IDEMPOTENCE, "permitted by WRITE on a topic, since Kafka 2.8")
    message = "IDEMPOTENT_WRITE on the cluster is not granted, nor is WRITE on any topic that can be seen"
    cure = "grant WRITE on the topics of the records; brokers older than 2.8 need IDEMPOTENT_WRITE, too"
    return Finding(Level.WARNING, _IDEMPOTENCE, message, cure)


def _replication(broker: Mapping[str, str], brokers: int) -> Finding:
    factor, min_in_sync = int(broker["default.replication.factor"]), int(broker["min.insync.replicas"])
    subject = "Kafka replication"
    message = (
        f"new topics have {factor} replicas, of which {min_in_sync} must store a record before it is "
        "acknowledged"
    )
    if min_in_sync > factor:
        cure = "raise default.replication.factor or lower min.insync.replicas on the brokers"
        return Finding(Level.ERROR, subject, f"{message}: writing to them fails", cure)
    if brokers > 1 and min_in_sync < 2:  # noqa: PLR2004 - one copy more than one
        cure = "set default.replication.factor=3 and min.insync.replicas=2 on the brokers"
        return Finding(
            Level.WARNING, subject, f"{message}: a failed broker can lose acknowledged records", cure
        )
    return Finding(Level.OK, subject, message)


def _creation(automatic: bool, broker: Mapping[str, str]) -> Finding:
    subject = "Kafka topic creation"
    if automatic:
        partitions = broker.get("num.partitions", "an unknown number of")
        return Finding(
            Level.OK, subject, f"missing topics are created on first use, with {partitions} partitions"
        )
    return Finding(
        Level.OK, subject, "topics must exist; a record for one that does not is reported as failed"
    )
