"""The options of the elector, as users write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outbox_sdk import ConfigError, Duration
from outbox_sdk.election import required_group

_LEASE_SHARE = 0.6
"""The lease's share of the session; the rest is a margin for requests in the network when the lease ends."""


def milliseconds(name: str, value: object) -> float:
    """Parses the value of a Kafka setting that is a time.

    Raises:
        ConfigError: It is not a number.
    """
    try:
        return float(str(value))
    except ValueError:
        raise ConfigError(f"Kafka setting '{name}' must be a number of milliseconds, not '{value}'") from None


@dataclass(frozen=True)
class NeliOptions:
    """How to reach Kafka, and how to take part in the election.

    Attributes:
        kafka: librdkafka settings by their own names. Producer settings are ignored, so that the mapping can
            be shared with a publisher. Settings that would break the election are refused.
        leader_topic: The topic whose partition 0 stands for leadership; by default the group's name and
            ``.neli``.
        leader_group_id: The consumer group that the competing processes share; required for an election.
        min_poll_interval: The shortest time between two confirmations, in seconds.
        heartbeat_timeout: Seconds without a confirmation before the leader steps down.
        session_timeout: Seconds without a heartbeat before Kafka removes a member from the group. The same
            for all processes; ``session.timeout.ms`` in ``kafka`` takes precedence.
        stop_after: Seconds for which the broker may refuse this process (a permission was withdrawn) before
            its candidacy ends; it retries until then.
    """

    kafka: Mapping[str, Any] = field(
        default_factory=lambda: {"bootstrap.servers": "localhost:9092"}, repr=False
    )
    leader_topic: str | None = None
    leader_group_id: str | None = None
    min_poll_interval: Duration = 0.1
    heartbeat_timeout: Duration = 5.0
    session_timeout: Duration = 10.0
    stop_after: Duration = 60.0

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

    @property
    def lease_duration(self) -> float:
        """Seconds that a confirmation is valid, from when its request was sent."""
        return min(_LEASE_SHARE * self.session, self.heartbeat_timeout)

    @property
    def confirm_interval(self) -> float:
        """Seconds between two confirmations: the lease survives several failed ones in a row."""
        return max(self.min_poll_interval, self.lease_duration / 5)
