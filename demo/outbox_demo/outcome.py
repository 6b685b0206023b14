"""The outcome of a demonstration."""

from dataclasses import dataclass

from outbox_audit import Result


@dataclass(frozen=True)
class Takeover:
    """How long nothing was delivered after the leader was killed, in seconds from the kill.

    Attributes:
        killed: The harvester that was killed.
        successor: The harvester that took over.
        until_leader: Until the successor raised the fence token.
        until_delivery: Until the successor's first message reached the consumer.
    """

    killed: str
    successor: str
    until_leader: float
    until_delivery: float

    def description(self) -> str:
        """Returns what the seconds measure."""
        return (
            f"from the kill of {self.killed} to the first record of {self.successor} "
            f"({self.until_leader:.1f} s until it led)"
        )


@dataclass(frozen=True)
class Outcome:
    """The outcome of a demonstration.

    Attributes:
        audit: The result of the audit.
        takeover: The times of the takeover.
        rolled_back: Records that were stashed and rolled back.
        late: Records whose transaction stayed open while others committed.
        mean_rate: Records delivered per second, from the first to the last.
        highest_rate: Largest number of records delivered in one second.
        left: Records left in the outbox.
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
        """Whether nothing was lost, out of order, left in the outbox, or delivered without a commit."""
        return self.audit.good and self.left == 0

    def figures(self) -> list[tuple[str, str, str]]:
        """Returns the figures, each as name, number, explanation."""
        audit, takeover = self.audit, self.takeover
        repeated = "" if audit.repeated == 0 else "allowed: delivery is at least once"
        return [
            ("sent", f"{audit.sent:,}", f"records in committed transactions, {self.late:,} of them late"),
            ("delivered", f"{audit.delivered:,}", "of them, each counted once"),
            ("lost", f"{audit.lost:,}", ""),
            ("out of order", f"{audit.out_of_order:,}", ""),
            ("foreign", f"{audit.foreign:,}", f"delivered of {self.rolled_back:,} that were rolled back"),
            ("repeated", f"{audit.repeated:,}", repeated),
            ("takeover", f"{takeover.until_delivery:.1f} s", takeover.description()),
            ("rate", f"{self.mean_rate:,.0f}/s", f"on average, {self.highest_rate:,.0f}/s at most"),
        ]

    def summary(self) -> str:
        """Returns the outcome in a sentence or two."""
        if self.left:
            return f"{self.left:,} records were left in the outbox.\n{self.audit.summary()}"
        return self.audit.summary()
