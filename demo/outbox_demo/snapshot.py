"""The state of a demonstration at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """The current role of a harvester."""

    STANDBY = "standing by"
    LEADER = "leads"
    KILLED = "killed"


@dataclass(frozen=True)
class Snapshot:
    """The state of a demonstration at one moment.

    Attributes:
        committed: Records that the application has stashed and committed.
        late: Records among them whose transaction stayed open while others committed.
        rolled_back: Records that it has stashed and rolled back.
        delivered: Messages that the consumer has received.
        backlog: Records in the outbox.
        rate: Messages that the consumer receives per second.
        token: The fence token; 0 before the first leader.
        roles: Harvester → its role.
    """

    committed: int
    late: int
    rolled_back: int
    delivered: int
    backlog: int
    rate: float
    token: int
    roles: Mapping[str, Role]
