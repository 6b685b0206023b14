"""The options of the elector, as users write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outbox_sdk import ConfigError, Duration

_LEASE_SHARE = 0.6
"""Of a session: what is left of it is the margin for a message that is under way when the lease ends."""


def milliseconds(name: str, value: object) -> float:
    """Reads the value of a Kafka setting that is a time.

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
            be shared with a publisher; those that the election rests on must not be among them.
        leader_topic: The topic that stands for leadership; the group's name and ``.neli`` if not given.
        leader_group_id: The name that the competing processes share; nobody is elected without one.
        min_poll_interval: Seconds that at least pass between two confirmations.
        heartbeat_timeout: Seconds after which a leader without a confirmation gives up.
        session_timeout: Seconds after which Kafka gives up a member that it does not hear from. The same for
            all processes; ``session.timeout.ms`` in ``kafka`` wins over it.
        stop_after: Seconds that the broker may refuse this process (a permission was withdrawn) before its
            candidacy ends; it tries again meanwhile.
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
        """The name that the competing processes share.

        Raises:
            ConfigError: There is none.
        """
        if not self.leader_group_id:
            raise ConfigError("the election needs a name that the competing processes share: leaderGroupID")
        return self.leader_group_id

    @property
    def topic(self) -> str:
        """The topic that stands for leadership."""
        return self.leader_topic or f"{self.group}.neli"

    @property
    def session(self) -> float:
        """Seconds after which Kafka gives up a member that it does not hear from."""
        name = "session.timeout.ms"
        value = self.kafka.get(name)
        return self.session_timeout if value is None else milliseconds(name, value) / 1000

    @property
    def term(self) -> float:
        """Seconds that one confirmation is worth, from when it was sent."""
        return min(_LEASE_SHARE * self.session, self.heartbeat_timeout)

    @property
    def pace(self) -> float:
        """Seconds between two confirmations: several must fail in a row before leadership is given up."""
        return max(self.min_poll_interval, self.term / 5)
