"""Checks the election's settings, the broker and its permissions, for ``outbox check``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from outbox_api import ConfigError, Finding, Level, OutboxError
from outbox_api.election import NO_GROUP
from outbox_kafka.client.admin import KafkaAdmin
from outbox_kafka.client.clients import transport_findings
from outbox_kafka.client.errors import describe
from outbox_kafka.client.settings import bootstrap_servers, client_settings

from outbox_neli_kafka.permissions import (
    CREATE_TOPIC,
    TIMEOUT,
    driver_error,
    is_refusal,
    missing_on_group,
    missing_on_topic,
    required,
    try_topic,
)
from outbox_neli_kafka.settings import NeliOptions, heartbeat_interval, milliseconds


def findings(options: NeliOptions) -> Sequence[Finding]:
    """Checks times, connection, permissions, and the broker's configuration; raises nothing."""
    settings = client_settings(options.kafka)
    try:
        found = _times(options)
    except ConfigError as error:
        cure = "write a number of milliseconds"
        return [Finding(Level.ERROR, "election settings", str(error), cure)]
    found.extend(transport_findings(settings, "election transport"))
    try:
        admin = KafkaAdmin(settings, driver_error)
        cluster = admin.wait_for_cluster(TIMEOUT)
    except OutboxError as error:
        cure = "start Kafka, or correct bootstrap.servers and the security settings"
        return [*found, Finding(Level.ERROR, "election broker", str(error), cure)]
    found.append(Finding(Level.OK, "election broker", f"reached at {bootstrap_servers(settings)}"))
    if options.leader_group_id is None:
        found.append(NO_GROUP)
    else:
        found.append(_topic(admin.client, options, options.topic in cluster.topics, settings))
        found.append(_group(admin.client, options, settings))
    try:
        config = admin.broker_config(cluster, TIMEOUT)
    except KafkaException as error:
        message = f"cannot be read: {describe(error.args[0], settings)}"
        cure = "grant DESCRIBE_CONFIGS on the cluster to see limits of the session timeout here"
        return [*found, Finding(Level.WARNING, "election limits", message, cure)]
    return [*found, *broker_findings(config, options)]


def broker_findings(broker: Mapping[str, str], options: NeliOptions) -> Sequence[Finding]:
    """Checks a broker's configuration; settings that are missing are not checked."""
    found: list[Finding] = []
    low, high = broker.get("group.min.session.timeout.ms"), broker.get("group.max.session.timeout.ms")
    if low is not None and high is not None:
        session = round(options.session * 1000)
        message = f"the session timeout is {session} ms, the broker permits {low} to {high} ms"
        if int(low) <= session <= int(high):
            found.append(Finding(Level.OK, "election session", message))
        else:
            cure = "set session.timeout.ms within these limits, or change them on the brokers"
            found.append(Finding(Level.ERROR, "election session", message, cure))
    if "classic" not in broker.get("group.coordinator.rebalance.protocols", "classic"):
        message = "the broker does not support the classic group protocol, which the election needs"
        cure = "add classic to group.coordinator.rebalance.protocols on the brokers"
        found.append(Finding(Level.ERROR, "election protocol", message, cure))
    return found


def _times(options: NeliOptions) -> list[Finding]:
    found, session, subject = [*options.findings()], options.session, "election times"
    for name in ("delivery.timeout.ms", "message.timeout.ms"):
        value = options.kafka.get(name)
        if value is not None and not 0 < milliseconds(name, value) < session * 1000:
            message = (
                f"{name} is {value} and the session timeout {session * 1000:g} ms: a former "
                "leader could still deliver after its successor has started"
            )
            cure = f"set {name} below the session timeout"
            found.append(Finding(Level.WARNING, subject, message, cure))
    name = "heartbeat.interval.ms"
    if milliseconds(name, options.kafka.get(name) or heartbeat_interval(options)) * 3 > session * 1000:
        message = f"{name} is more than a third of the session timeout of {session:g} s"
        cure = f"lower {name}, or leave it out"
        found.append(Finding(Level.WARNING, subject, message, cure))
    return found


def _topic(admin: AdminClient, options: NeliOptions, exists: bool, settings: Mapping[str, Any]) -> Finding:
    subject = "leader topic"
    if not exists:
        return _missing_topic(admin, options, settings)
    try:
        missing = missing_on_topic(admin, options.topic)
    except KafkaException as error:
        return _not_visible(subject, options.topic, error, options, settings)
    return _permission(subject, options.topic, missing)


def _missing_topic(admin: AdminClient, options: NeliOptions, settings: Mapping[str, Any]) -> Finding:
    """Judges a topic that is missing or hidden: members create it, at their start or within seconds."""
    topic = options.topic
    try:
        try_topic(admin, topic)
    except KafkaException as error:
        if error.args[0].retriable():
            return _not_visible("leader topic", topic, error, options, settings)
        what = f"'{topic}' does not exist or is hidden, and cannot be created by members of the election"
        message = f"{what}: {describe(error.args[0], settings)}; nobody leads without it"
        return Finding(Level.ERROR, "leader topic", message, CREATE_TOPIC)
    return Finding(Level.OK, "leader topic", f"'{topic}' does not exist yet; it is created at the start")


def _group(admin: AdminClient, options: NeliOptions, settings: Mapping[str, Any]) -> Finding:
    subject = "leader group"
    try:
        missing = missing_on_group(admin, options.group)
    except KafkaException as error:
        return _not_visible(subject, options.group, error, options, settings)
    return _permission(subject, options.group, missing)


def _not_visible(
    subject: str, name: str, error: KafkaException, options: NeliOptions, settings: Mapping[str, Any]
) -> Finding:
    message = f"'{name}' cannot be seen: {describe(error.args[0], settings)}"
    if is_refusal(error.args[0]):
        return Finding(Level.ERROR, subject, message, required(options))
    cure = "check again: a broker that has just started may not be ready"
    return Finding(Level.WARNING, subject, message, cure)


def _permission(subject: str, name: str, missing: Sequence[str]) -> Finding:
    if missing:
        what = " and ".join(missing)
        return Finding(Level.ERROR, subject, f"'{name}': {what} is not granted", f"grant {what} on '{name}'")
    return Finding(Level.OK, subject, f"'{name}' can be used")
