"""What `outbox check` says of the settings, the broker, and what it permits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    AdminClient,
    ClusterMetadata,
    ConfigResource,
)
from outbox_sdk import Finding, Level, OutboxError

from outbox_kafka.settings import redact
from outbox_kafka.topics import Administration, is_mock
from outbox_kafka.transaction_findings import (
    LOG_TOPIC,
    TransactionLog,
    mock_finding,
    settings_finding,
    transaction_findings,
)
from outbox_kafka.verdict import reason

_REACH: Final = 5.0
"""Seconds to wait for each of the broker's answers."""

_SESSION_MS: Final = 10_000
"""Milliseconds of an election's session, unless an elector is told otherwise."""


def look(producer: Mapping[str, Any], shared: Mapping[str, Any], *, transactional: bool) -> Sequence[Finding]:
    """Looks at everything that could be wrong between here and the broker.

    Args:
        producer: The settings of a producer, complete.
        shared: The user's settings alone.
        transactional: Whether there are to be transactions.
    """
    findings = [_delivery_timeout(producer)]
    if transactional:
        findings.append(settings_finding(producer))
    try:
        administration = Administration(shared)
        cluster = administration.reach(_REACH)
    except OutboxError as error:
        cure = "start Kafka, or correct bootstrap.servers and the security settings"
        return [*findings, Finding(Level.ERROR, "Kafka broker", str(error), cure)]
    admin, brokers = administration.client, sorted(cluster.brokers)
    findings.append(Finding(Level.OK, "Kafka broker", f"reached, one of {len(brokers)}"))
    if transactional and is_mock(cluster):
        return [*findings, mock_finding()]
    findings.append(_permission(admin, shared))
    try:
        values = _values(admin, ConfigResource(ConfigResource.Type.BROKER, str(brokers[0])))
    except KafkaException as error:
        message = f"cannot be read: {redact(reason(error.args[0]), shared)}"
        cure = "grant DESCRIBE_CONFIGS on the cluster to see replication and size limits here"
        return [*findings, Finding(Level.WARNING, "Kafka broker settings", message, cure)]
    findings.extend(broker_findings(values, len(brokers), producer))
    if transactional:
        log = _transaction_log(admin, cluster)
        findings.extend(transaction_findings(values, len(brokers), producer, log))
    return findings


def broker_findings(
    broker: Mapping[str, str], brokers: int, producer: Mapping[str, Any]
) -> Sequence[Finding]:
    """Judges a broker's own settings.

    Args:
        broker: The broker's settings; what it does not tell is not judged.
        brokers: How many brokers there are.
        producer: The settings of a producer, complete.
    """
    findings = []
    if {"default.replication.factor", "min.insync.replicas"} <= broker.keys():
        findings.append(_replication(broker, brokers))
    if broker.get("unclean.leader.election.enable") == "true":
        message = "a replica that lags behind may become a leader, and acknowledged records be lost"
        cure = "set unclean.leader.election.enable=false on the brokers"
        findings.append(Finding(Level.WARNING, "Kafka leader election", message, cure))
    if "message.max.bytes" in broker:
        findings.append(_size(int(broker["message.max.bytes"]), producer))
    if "auto.create.topics.enable" in broker:
        findings.append(_creation(broker["auto.create.topics.enable"] == "true", broker))
    return findings


def _values(admin: AdminClient, resource: ConfigResource) -> dict[str, str]:
    [future] = admin.describe_configs([resource], request_timeout=_REACH).values()
    return {name: entry.value for name, entry in future.result().items() if entry.value is not None}


def _transaction_log(admin: AdminClient, cluster: ClusterMetadata) -> TransactionLog:
    try:
        values = _values(admin, ConfigResource(ConfigResource.Type.TOPIC, LOG_TOPIC))
    except KafkaException as error:
        return TransactionLog(missing=error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART)
    topic = cluster.topics.get(LOG_TOPIC)
    replicas = [len(partition.replicas) for partition in topic.partitions.values()] if topic else []
    least = values.get("min.insync.replicas")
    return TransactionLog(min(replicas, default=None), None if least is None else int(least))


def _delivery_timeout(producer: Mapping[str, Any]) -> Finding:
    name = "delivery.timeout.ms" if "delivery.timeout.ms" in producer else "message.timeout.ms"
    value = int(producer[name])
    message = f"{name} is {value} ms"
    if 0 < value < _SESSION_MS:
        return Finding(Level.OK, "Kafka delivery timeout", message)
    message += "; a leader that lost its place could still deliver after its successor has begun"
    return Finding(
        Level.WARNING,
        "Kafka delivery timeout",
        message,
        f"set it below the election's session timeout ({_SESSION_MS} ms unless changed), or leave it out",
    )


def _permission(admin: AdminClient, shared: Mapping[str, Any]) -> Finding:
    subject = "Kafka idempotence"
    try:
        description = admin.describe_cluster(
            include_authorized_operations=True, request_timeout=_REACH
        ).result()
    except KafkaException as error:
        message = f"cannot be asked about: {redact(reason(error.args[0]), shared)}"
        return Finding(Level.WARNING, subject, message, "grant DESCRIBE on the cluster to see it here")
    operations = description.authorized_operations
    if operations is None:
        return Finding(Level.OK, subject, "not told; since Kafka 2.8 WRITE on a topic is enough")
    if AclOperation.IDEMPOTENT_WRITE in operations:
        return Finding(Level.OK, subject, "permitted")
    # Since Kafka 2.8 the right to write to any topic includes it, which this answer does not show.
    message = "IDEMPOTENT_WRITE on the cluster is not granted; brokers older than 2.8 refuse the producer"
    cure = "grant it; on newer brokers WRITE on any topic is enough"
    return Finding(Level.WARNING, subject, message, cure)


def _replication(broker: Mapping[str, str], brokers: int) -> Finding:
    factor, least = int(broker["default.replication.factor"]), int(broker["min.insync.replicas"])
    subject = "Kafka replication"
    message = (
        f"new topics have {factor} replicas, of which {least} must have a record before it is acknowledged"
    )
    if least > factor:
        cure = "raise default.replication.factor or lower min.insync.replicas on the brokers"
        return Finding(Level.ERROR, subject, f"{message}: nothing can be written to them", cure)
    if brokers > 1 and least < 2:  # noqa: PLR2004 - one copy more than one
        cure = "set default.replication.factor=3 and min.insync.replicas=2 on the brokers"
        return Finding(
            Level.WARNING, subject, f"{message}: the loss of one broker can lose acknowledged records", cure
        )
    return Finding(Level.OK, subject, message)


def _size(largest: int, producer: Mapping[str, Any]) -> Finding:
    ours = int(producer.get("message.max.bytes", 1_000_000))
    subject = "Kafka message size"
    message = f"the client sends up to {ours} bytes, the broker takes up to {largest}"
    if ours <= largest:
        return Finding(Level.OK, subject, message)
    cure = "lower message.max.bytes here or raise it on the brokers; larger records are refused one by one"
    return Finding(Level.WARNING, subject, message, cure)


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
