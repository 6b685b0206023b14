"""The options of the elector, and the settings of its clients that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import uuid4

from outbox_api import ConfigError
from outbox_api.election import LeaseTimes, required_group
from outbox_kafka.client.settings import as_text, client_settings


def milliseconds(name: str, value: object) -> float:
    """Parses the value of a Kafka setting that is a time."""
    try:
        return float(str(value))
    except ValueError:
        raise ConfigError(f"Kafka setting '{name}' must be a number of milliseconds, not '{value}'") from None


@dataclass(frozen=True)
class NeliOptions(LeaseTimes):
    """How to reach Kafka, and how to take part in the election.

    Attributes:
        kafka: librdkafka settings by their own names. Producer settings are ignored, so that the mapping can
            be shared with a publisher. Settings that would break the election are refused.
        leader_topic: The topic whose partition 0 stands for leadership; by default the group's name and
            ``.neli``.
        leader_group_id: The consumer group that the competing processes share; required for an election.
        session_timeout: Seconds without a heartbeat before Kafka removes a member from the group;
            ``session.timeout.ms`` in ``kafka`` takes precedence.
    """

    lease_share: ClassVar[float] = 0.6
    confirmations: ClassVar[int] = 5
    joins_at_once: ClassVar[bool] = False  # a group of Kafka gathers its members first

    kafka: Mapping[str, Any] = field(
        default_factory=lambda: {"bootstrap.servers": "localhost:9092"}, repr=False
    )
    leader_topic: str | None = None
    leader_group_id: str | None = None

    @property
    def group(self) -> str:
        """The consumer group that the competing processes share.

        Raises:
            ConfigError: There is none.
        """
        return required_group(self.leader_group_id)

    @property
    def topic(self) -> str:
        """The topic whose partition 0 stands for leadership."""
        return self.leader_topic or f"{self.group}.neli"

    @property
    def session(self) -> float:
        """Seconds without a heartbeat before Kafka removes a member from the group."""
        name = "session.timeout.ms"
        value = self.kafka.get(name)
        return self.session_timeout if value is None else milliseconds(name, value) / 1000


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
    """Checks that no setting contradicts the election."""
    for name, why in _RESERVED.items():
        value = kafka.get(name)
        if value is not None and str(as_text(value)).lower() != _ACCEPTED.get(name):
            raise ConfigError(f"Kafka setting '{name}' must not be set for the election: {why}; remove it")


def heartbeat_interval(options: NeliOptions) -> str:
    """Returns the default for the milliseconds between two heartbeats of a member.

    The answer to its next heartbeat tells a standby that the leader has left.
    """
    return str(min(200, round(options.session * 1000) // 3))


_REFRESH_MS = 5000
"""Milliseconds between two requests of what the broker knows of the leader topic, one small answer each."""


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
        # A cluster that came back empty has no leader topic. The client joins the group by what it knew, gets
        # nothing, and asks again only then: after five minutes by its default.
        "topic.metadata.refresh.interval.ms": str(_REFRESH_MS),
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
