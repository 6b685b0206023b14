"""The options of a demonstration, and the names that all its parts use."""

from dataclasses import dataclass

TABLE = "outbox"
TOPIC = "orders"
PARTITIONS = 6
HARVESTERS = ("harvester-1", "harvester-2")
LEADER_GROUP = "outbox-demo"
SESSION_SECONDS = 6
"""The election's session timeout: seconds without a heartbeat until another leader is elected."""


@dataclass(frozen=True)
class DemoOptions:
    """The options of one demonstration.

    Attributes:
        seconds: How long the application writes.
        rate: Records that the application writes per second, approximately.
        keys: The number of orders; each order is a record key.
        engine: The engine of both harvesters.
        keep: Whether servers and harvesters keep running after the audit, until Ctrl-C.
    """

    seconds: float = 40.0
    rate: float = 300.0
    keys: int = 200
    engine: str = "spark"
    keep: bool = False

    @property
    def kill_at(self) -> float:
        """Seconds after the first record at which the leader is killed."""
        return min(12.0, self.seconds * 0.4)
