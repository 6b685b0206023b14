"""What a demonstration is told, and the names that all its parts use."""

from dataclasses import dataclass
from typing import Literal

TABLE = "outbox"
TOPIC = "orders"
PARTITIONS = 6
HARVESTERS = ("harvester-1", "harvester-2")
LEADER_GROUP = "outbox-demo"
SESSION_SECONDS = 6
"""How long the coordinator waits for a sign of life before it elects another leader."""


@dataclass(frozen=True)
class Script:
    """How one demonstration goes.

    Attributes:
        seconds: For how long the application writes.
        rate: Records it writes per second, about.
        keys: How many orders there are; each is a key.
        engine: Where the harvesters' lanes run.
        keep: Whether everything is left running after the verdict, until Ctrl-C.
    """

    seconds: float = 40.0
    rate: float = 300.0
    keys: int = 200
    engine: Literal["spark", "inline"] = "spark"
    keep: bool = False

    @property
    def kill_at(self) -> float:
        """Seconds after the first record at which the leader is killed."""
        return min(12.0, self.seconds * 0.4)
