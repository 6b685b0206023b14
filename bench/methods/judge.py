"""What a consumer saw of a history, beside what was committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple


class Committed(NamedTuple):
    """A record that a transaction has committed, and no restore has undone."""

    name: str
    key: str
    at: float  # when harvesters first had an occasion to deliver it, in seconds
    poison: bool = False


class Delivered(NamedTuple):
    """A record as a consumer got it."""

    name: str
    key: str
    at: float  # when it was delivered, in seconds


@dataclass(frozen=True, slots=True)
class Verdict:
    """How often a history shows each anomaly.

    Attributes:
        lost: Records that were committed, never delivered, and that the method does not try any more.
        stuck: Records that were never delivered, as the method does not get past an error.
        invented: Records that were delivered although their transaction was rolled back.
        reordered: Keys of which a record was first delivered before an earlier one, or whose last delivery is
            not their last record.
        repeated: Deliveries beyond the first of each record.
        stalled: Seconds for which a record waited at most, from the first occasion to deliver it.
    """

    lost: int = 0
    stuck: int = 0
    invented: int = 0
    reordered: int = 0
    repeated: int = 0
    stalled: float = 0.0

    @property
    def shown(self) -> dict[str, float]:
        """The anomalies that it has."""
        return {name: count for name, count in asdict(self).items() if count}


def judge(committed: Sequence[Committed], delivered: Sequence[Delivered], *, fails: bool) -> Verdict:
    """Compares what was committed, in the order of commits, with what was delivered, in that order.

    Args:
        committed: All records that a consumer should get.
        delivered: What it got.
        fails: Whether the method still failed at the end.
    """
    wanted, refused = _wanted(committed)
    counts = Counter(each.name for each in delivered)
    first: dict[str, Delivered] = {}
    for each in delivered:
        first.setdefault(each.name, each)
    missing = len(wanted.keys() - first.keys())
    stalled = max((first[name].at - each.at for name, each in wanted.items() if name in first), default=0.0)
    return Verdict(
        lost=0 if fails else missing,
        stuck=missing if fails else 0,
        invented=sum(name not in wanted and name not in refused for name in counts),
        reordered=_reordered([each for each in committed if each.name in wanted], delivered),
        repeated=sum(counts.values()) - len(counts),
        stalled=round(max(stalled, 0.0)),
    )


def _wanted(committed: Sequence[Committed]) -> tuple[dict[str, Committed], set[str]]:
    """Returns what must be delivered, and the names of what need not: poison, and what is behind it."""
    keys: set[str] = set()
    wanted: dict[str, Committed] = {}
    refused: set[str] = set()
    for each in committed:
        if each.poison:
            keys.add(each.key)
        if each.key in keys:
            refused.add(each.name)
        else:
            wanted[each.name] = each
    return wanted, refused


def _reordered(committed: Sequence[Committed], delivered: Sequence[Delivered]) -> int:
    """Counts keys whose records came in another order than they were committed in."""
    places = {each.name: place for place, each in enumerate(committed)}
    count = 0
    for key in {each.key for each in committed}:
        got = [places[each.name] for each in delivered if each.key == key and each.name in places]
        firsts = list(dict.fromkeys(got))
        count += bool(got) and (firsts != sorted(firsts) or got[-1] != max(got))
    return count
