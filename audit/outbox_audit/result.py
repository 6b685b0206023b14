"""The result of an audit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from outbox_core.text.wording import counted

RecordName = tuple[str, int | None]
"""A record's key and sequence; no sequence if the message has none."""


class Defect(StrEnum):
    """What can be wrong with a delivery; duplicates count only for exactly-once delivery."""

    LOST = "lost"
    FOREIGN = "foreign"
    OVERTAKEN = "overtaken"
    STALE = "stale"
    DUPLICATES = "duplicates"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of an audit, in records unless said otherwise.

    Attributes:
        sent: Stashed by transactions that committed.
        delivered: Those of them that arrived, each counted once.
        foreign: Messages that were not committed, for instance of a transaction that was rolled back.
        overtaken: Arrived for the first time behind a later record of their key.
        reappeared: Messages that repeat a record behind a later one of its key; a lost leader causes them, in
            order, and later records follow again.
        stale: Records whose last message is behind the last one of a later record of their key.
        repeated: Messages beyond the first of a record; at-least-once delivery allows them, in order.
        duplicates: Records that arrived more than once, each counted once.
        most_stale: The keys with the most stale records, and how many; the key with the most first.
        examples: The first few records of each defect.
    """

    sent: int
    delivered: int
    foreign: int
    overtaken: int
    reappeared: int
    stale: int
    repeated: int
    duplicates: int = 0
    most_stale: tuple[tuple[str, int], ...] = ()
    examples: Mapping[Defect, tuple[RecordName, ...]] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Records that were committed and never arrived."""
        return self.sent - self.delivered

    @property
    def out_of_order(self) -> int:
        """Records that arrived for the first time behind a later one of their key, and stale ones."""
        return self.overtaken + self.stale

    @property
    def good(self) -> bool:
        """Whether all records arrived, in order, and nothing else did; false if nothing was sent."""
        return self.sent > 0 and not (self.lost or self.foreign or self.out_of_order)

    @property
    def exactly_once(self) -> bool:
        """Whether the result is good, and no record arrived more than once."""
        return self.good and not self.duplicates

    def summary(self, *, exactly_once: bool = False) -> str:
        """Returns the outcome for people: one sentence, or one line for each defect.

        Args:
            exactly_once: Whether duplicates are a defect.
        """
        if not self.sent:
            return "Nothing was sent, so there is nothing to audit."
        if self.exactly_once if exactly_once else self.good:
            once = " exactly once" if exactly_once else ""
            again = f" {counted(self.repeated, 'message')} repeated an earlier one." if self.repeated else ""
            all_ = f"All {self.sent:,} records arrived{once}, in order for every key, and nothing else did."
            return all_ + again
        faults = [
            (Defect.LOST, self.lost, f"of {self.sent:,} committed records never arrived"),
            (Defect.FOREIGN, self.foreign, "arrived without being committed"),
            (Defect.OVERTAKEN, self.overtaken, "arrived behind a later record of the same key"),
            (
                Defect.STALE,
                self.stale,
                "arrived again behind a later record of the same key that did not follow again",
            ),
        ]
        if exactly_once:
            faults.append((Defect.DUPLICATES, self.duplicates, "arrived more than once"))
        return "\n".join(
            f"{count:,} {fault}: {self._named(defect, count)}." for defect, count, fault in faults if count
        )

    def _named(self, defect: Defect, count: int) -> str:
        named = self.examples.get(defect, ())
        names = [f"{key!r} {'without a number' if number is None else number}" for key, number in named]
        more = [f"and {count - len(named):,} more"] if count > len(named) else []
        return ", ".join(names + more)
