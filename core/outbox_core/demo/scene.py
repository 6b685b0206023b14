"""What can be seen of a demonstration at one moment, and at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from outbox_core.audit import Result


class Role(StrEnum):
    """What a harvester is at the moment."""

    STANDBY = "standing by"
    LEADER = "leads"
    KILLED = "killed"


@dataclass(frozen=True)
class Scene:
    """One moment.

    Attributes:
        committed: Records that the application has stashed and committed.
        late: Records among them whose transaction was left open while others committed.
        rolled_back: Records that it has stashed and rolled back.
        delivered: Messages that the consumer has received.
        backlog: Records that wait in the outbox.
        rate: Messages that the consumer receives per second.
        token: The fence token; 0 before the first leader.
        roles: Harvester → what it is.
    """

    committed: int
    late: int
    rolled_back: int
    delivered: int
    backlog: int
    rate: float
    token: int
    roles: Mapping[str, Role]


@dataclass(frozen=True)
class Takeover:
    """How long the outbox stood still when its leader was killed, in seconds from the kill.

    Attributes:
        killed: Who was killed.
        successor: Who took over.
        until_leader: Until the successor had raised the fence.
        until_delivery: Until the first message of the successor reached the consumer.
    """

    killed: str
    successor: str
    until_leader: float
    until_delivery: float

    def remark(self) -> str:
        """Returns what the seconds are from and to."""
        return (
            f"from the kill of {self.killed} to the first record of {self.successor} "
            f"({self.until_leader:.1f} s until it led)"
        )


@dataclass(frozen=True)
class Outcome:
    """How a demonstration ended.

    Attributes:
        audit: What the audit found.
        takeover: The takeover.
        rolled_back: Records that were stashed and rolled back.
        late: Records whose transaction was left open while others committed.
        mean_rate: Records delivered per second, from the first to the last.
        highest_rate: Most records delivered in one second.
        left: Records that were left in the outbox.
    """

    audit: Result
    takeover: Takeover
    rolled_back: int
    late: int
    mean_rate: float
    highest_rate: float
    left: int

    @property
    def good(self) -> bool:
        """Whether nothing was lost, reversed, left behind, or delivered that should not be."""
        return self.audit.good and self.left == 0

    def figures(self) -> list[tuple[str, str, str]]:
        """Returns the figures: name, number, remark."""
        audit, takeover = self.audit, self.takeover
        repeated = "" if audit.repeated == 0 else "allowed: delivery is at least once"
        return [
            ("sent", f"{audit.sent:,}", f"records in committed transactions, {self.late:,} of them late"),
            ("delivered", f"{audit.delivered:,}", "of them, each counted once"),
            ("lost", f"{audit.lost:,}", ""),
            ("out of order", f"{audit.out_of_order:,}", ""),
            ("foreign", f"{audit.foreign:,}", f"delivered of {self.rolled_back:,} that were rolled back"),
            ("repeated", f"{audit.repeated:,}", repeated),
            ("takeover", f"{takeover.until_delivery:.1f} s", takeover.remark()),
            ("rate", f"{self.mean_rate:,.0f}/s", f"on average, {self.highest_rate:,.0f}/s at most"),
        ]

    def verdict(self) -> str:
        """Returns the outcome in plain words."""
        if self.left:
            return f"{self.left:,} records were left in the outbox.\n{self.audit.verdict()}"
        return self.audit.verdict()
