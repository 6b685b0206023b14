"""Builds the settings of the election's clients from the user's, and refuses contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from outbox_kafka_client.settings import as_text, client_settings
from outbox_sdk import ConfigError

from outbox_neli_kafka.options import NeliOptions

_RESERVED = {
    "group.id": "the group is named by leaderGroupID",
    "group.instance.id": "a static member keeps its partitions while it is gone, so nobody would take over",
    "group.protocol": "only the classic protocol refuses commits of a member that was removed",
    "partition.assignment.strategy": "any other would revoke leadership whenever a standby joins",
    "enable.auto.commit": "a commit is the election's proof of leadership",
}
_ACCEPTED = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": "false",
}


def refuse_reserved(kafka: Mapping[str, Any]) -> None:
    """Checks that no setting contradicts the election.

    Raises:
        ConfigError: A setting does; the message says which and why.
    """
    for name, why in _RESERVED.items():
        value = kafka.get(name)
        if value is not None and str(as_text(value)).lower() != _ACCEPTED.get(name):
            raise ConfigError(f"Kafka setting '{name}' must not be set for the election: {why}; remove it")


def heartbeat_interval(options: NeliOptions) -> str:
    """Returns the default for the milliseconds between two heartbeats of a member.

    The answer to its next heartbeat tells a standby that the leader has left.
    """
    return str(min(200, round(options.session * 1000) // 3))


def consumer_settings(options: NeliOptions) -> dict[str, Any]:
    """Returns the settings of the group's consumer."""
    session = round(options.session * 1000)
    defaults = {
        "client.id": f"{options.group}.neli",
        "heartbeat.interval.ms": heartbeat_interval(options),
        "log.connection.close": "false",
        "max.poll.interval.ms": str(session),
        "reconnect.backoff.max.ms": "250",
        # A request that is lost in the network must not block the following ones for longer than a session.
        "socket.timeout.ms": str(session),
    }
    forced = {
        "auto.offset.reset": "latest",
        "enable.auto.commit": "false",
        "group.id": options.group,
        # A member with a name takes its place again at once after an outage of the broker. Without one the
        # client would join as somebody new, and the broker would wait until its former self times out.
        "group.instance.id": uuid4().hex,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": str(session),
    }
    return defaults | client_settings(options.kafka) | forced


def heartbeat_settings(options: NeliOptions) -> dict[str, Any]:
    """Returns the settings of the producer of heartbeats; a late heartbeat is useless, so it is dropped."""
    defaults = {
        "client.id": f"{options.group}.neli",
        "log.connection.close": "false",
        "reconnect.backoff.max.ms": "250",
    }
    forced = {
        "acks": "1",
        "delivery.timeout.ms": str(max(1, round(options.lease_duration * 1000))),
        "enable.idempotence": "false",
        "linger.ms": "0",
    }
    # The user's settings for publishing records do not apply to heartbeats.
    for_records = {
        "compression.codec",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.timeout.ms",
        "queue.buffering.max.ms",
        "request.required.acks",
        "transactional.id",
    }
    user = {name: value for name, value in client_settings(options.kafka).items() if name not in for_records}
    return defaults | user | forced
