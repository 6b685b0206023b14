"""What a consumer of committed records has read of a round, beside what was committed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from outbox_audit import Audit, Result

from tests.shop import Shop
from tests.topics import sequence

THERE, BACK, OTHERWISE = "there", "back", "otherwise"
"""The ways on which a record can be repeated. Otherwise it is the other tool that repeats, by itself."""

OWN = "__debezium."
"""How headers begin in which Debezium says which connector has sent a record."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a round.

    Attributes:
        result: Of the audit.
        repeated: Records that were repeated on the way there, on the way back, and at other times.
        most_of_a_key: The most repeated records of one key on one way.
        moved: Keys with records in more than one partition.
        forms: The ways in which records were written: names of headers, and the beginnings of values.
    """

    result: Result
    repeated: Mapping[str, int]
    most_of_a_key: int
    moved: int
    forms: int

    @property
    def good(self) -> bool:
        """Whether nothing was lost, foreign or out of order, and consumers saw no difference."""
        return self.result.good and not self.moved and self.forms == 1

    @property
    def at_a_change(self) -> int:
        """How many records were repeated on a way, not by the other tool itself."""
        return self.repeated[THERE] + self.repeated[BACK]

    def __str__(self) -> str:
        """Returns the outcome for people."""
        result = self.result
        faults = "" if result.good else f"\n{result.summary()}"
        return (
            f"{result.sent} committed, {result.lost} lost, {result.foreign} foreign,"
            f" {result.out_of_order} out of order; repeated {self.repeated[THERE]} there,"
            f" {self.repeated[BACK]} back (most of a key {self.most_of_a_key}),"
            f" {self.repeated[OTHERWISE]} at other times; {self.moved} keys moved,"
            f" {self.forms} form(s){faults}"
        )


@dataclass(slots=True)
class Moments:
    """When the ways there and back began and ended, in seconds since the epoch."""

    there: float = inf
    arrived: float = inf
    back: float = inf
    returned: float = inf

    def way(self, at: float) -> str:
        """Returns on which way a message was written."""
        if self.there <= at < self.arrived:
            return THERE
        return BACK if self.back <= at < self.returned else OTHERWISE


def judge(shop: Shop, moments: Moments) -> Verdict:
    """Compares the sales with the topic as they are now."""
    audit = Audit()
    for customer, number in shop.sold():
        audit.committed(customer, number)
    seen: set[tuple[str, int | None]] = set()
    places: dict[str, set[int | None]] = defaultdict(set)
    again: Counter[tuple[str, str]] = Counter()
    forms = set()
    for message in shop.messages():
        key, place = (message.key() or b"").decode(), sequence(message)
        audit.arrived(key, place)
        if (key, place) in seen:
            again[moments.way(message.timestamp()[1] / 1000), key] += 1
        seen.add((key, place))
        places[key].add(message.partition())
        headers = tuple(sorted(name for name in dict(message.headers() or []) if not name.startswith(OWN)))
        forms.add((headers, (message.value() or b"").rstrip(b"0123456789}")))
    repeated = Counter({THERE: 0, BACK: 0, OTHERWISE: 0})
    for (way, _), count in again.items():
        repeated[way] += count
    most = max((count for (way, _), count in again.items() if way != OTHERWISE), default=0)
    return Verdict(
        audit.result(), repeated, most, sum(len(found) > 1 for found in places.values()), len(forms)
    )
