"""What `outbox check` says of the election."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    ConfigResource,
)
from outbox_sdk import ConfigError, Finding, Level, OutboxError

from outbox_neli_kafka.options import NeliOptions, milliseconds
from outbox_neli_kafka.permissions import REACH, missing_on_group, missing_on_topic, needed
from outbox_neli_kafka.settings import client_settings, heartbeat_interval, is_refusal, reason, where
from outbox_neli_kafka.topic import Administration

_UNNAMED = Finding(
    Level.WARNING,
    "leader group",
    "not known yet, and so not looked at: it follows from the outbox, which the database did not name",
    "correct what is said of the database, or set leaderGroupID",
)


def look(options: NeliOptions) -> Sequence[Finding]:
    """Looks at everything that could be wrong between here and the coordinator."""
    settings = client_settings(options.kafka)
    try:
        findings = _times(options)
    except ConfigError as error:
        cure = "write a number of milliseconds"
        return [Finding(Level.ERROR, "election settings", str(error), cure)]
    try:
        administration = Administration(settings)
        cluster = administration.reach(REACH)
    except OutboxError as error:
        cure = "start Kafka, or correct bootstrap.servers and the security settings"
        return [*findings, Finding(Level.ERROR, "election broker", str(error), cure)]
    findings.append(Finding(Level.OK, "election broker", f"reached at {where(settings)}"))
    admin = administration.client
    if options.leader_group_id is None:
        findings.append(_UNNAMED)
    else:
        findings.append(_topic(admin, options, options.topic in cluster.topics, settings))
        findings.append(_group(admin, options, settings))
    try:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(min(cluster.brokers)))
        [future] = admin.describe_configs([resource], request_timeout=REACH).values()
        entries = future.result()
    except KafkaException as error:
        message = f"cannot be read: {reason(error.args[0], settings)}"
        cure = "grant DESCRIBE_CONFIGS on the cluster to see limits of the session timeout here"
        return [*findings, Finding(Level.WARNING, "election limits", message, cure)]
    values = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return [*findings, *broker_findings(values, options)]


def broker_findings(broker: Mapping[str, str], options: NeliOptions) -> Sequence[Finding]:
    """Judges a broker's own settings; what it does not tell is not judged."""
    findings = []
    low, high = broker.get("group.min.session.timeout.ms"), broker.get("group.max.session.timeout.ms")
    if low is not None and high is not None:
        session = round(options.session * 1000)
        message = f"the session timeout is {session} ms, the broker permits {low} to {high} ms"
        if int(low) <= session <= int(high):
            findings.append(Finding(Level.OK, "election session", message))
        else:
            cure = "set session.timeout.ms within these limits, or change them on the brokers"
            findings.append(Finding(Level.ERROR, "election session", message, cure))
    if "classic" not in broker.get("group.coordinator.rebalance.protocols", "classic"):
        message = "the broker does not speak the classic group protocol, which the election needs"
        cure = "add classic to group.coordinator.rebalance.protocols on the brokers"
        findings.append(Finding(Level.ERROR, "election protocol", message, cure))
    return findings


def _times(options: NeliOptions) -> list[Finding]:
    findings = []
    session, subject = options.session, "election times"
    if options.heartbeat_timeout >= session:
        message = (
            f"a leader gives up {options.term:g} s after its last confirmation; the heartbeat timeout of "
            f"{options.heartbeat_timeout:g} s has no effect beside a session timeout of {session:g} s"
        )
        cure = "set the heartbeat timeout to about half of the session timeout"
        findings.append(Finding(Level.WARNING, subject, message, cure))
    if options.min_poll_interval * 2 > options.term:
        message = (
            f"leadership is confirmed every {options.pace:g} s and given up {options.term:g} s after the "
            "last confirmation: one that is late ends it"
        )
        cure = "lower the minimum poll interval, or raise the heartbeat and session timeouts"
        findings.append(Finding(Level.WARNING, subject, message, cure))
    for name in ("delivery.timeout.ms", "message.timeout.ms"):
        value = options.kafka.get(name)
        if value is not None and not 0 < milliseconds(name, value) < session * 1000:
            message = (
                f"{name} is {value} and the session timeout {session * 1000:g} ms: a leader that lost its "
                "place could still deliver after its successor has begun"
            )
            cure = f"set {name} below the session timeout"
            findings.append(Finding(Level.WARNING, subject, message, cure))
    name = "heartbeat.interval.ms"
    if milliseconds(name, options.kafka.get(name) or heartbeat_interval(options)) * 3 > session * 1000:
        message = f"{name} is more than a third of the session timeout of {session:g} s"
        cure = f"lower {name}, or leave it out"
        findings.append(Finding(Level.WARNING, subject, message, cure))
    return findings or [
        Finding(
            Level.OK,
            subject,
            f"confirmed every {options.pace:g} s, given up after {options.term:g} s, "
            f"taken over after {session:g} s",
        )
    ]


def _topic(admin: AdminClient, options: NeliOptions, exists: bool, settings: Mapping[str, Any]) -> Finding:
    subject = "leader topic"
    if not exists:
        message = f"'{options.topic}' does not exist yet, and is created at the start"
        return Finding(Level.OK, subject, message)
    try:
        missing = missing_on_topic(admin, options.topic)
    except KafkaException as error:
        return _unseen(subject, options.topic, error, options, settings)
    return _judge(subject, options.topic, missing)


def _group(admin: AdminClient, options: NeliOptions, settings: Mapping[str, Any]) -> Finding:
    subject = "leader group"
    try:
        missing = missing_on_group(admin, options.group)
    except KafkaException as error:
        return _unseen(subject, options.group, error, options, settings)
    return _judge(subject, options.group, missing)


def _unseen(
    subject: str, name: str, error: KafkaException, options: NeliOptions, settings: Mapping[str, Any]
) -> Finding:
    message = f"'{name}' cannot be seen: {reason(error.args[0], settings)}"
    if is_refusal(error.args[0]):
        return Finding(Level.ERROR, subject, message, needed(options))
    return Finding(Level.WARNING, subject, message, "look again: a broker that has just started is not ready")


def _judge(subject: str, name: str, missing: Sequence[str]) -> Finding:
    if missing:
        what = " and ".join(missing)
        return Finding(Level.ERROR, subject, f"'{name}': {what} is not granted", f"grant {what} on '{name}'")
    return Finding(Level.OK, subject, f"'{name}' can be used")
