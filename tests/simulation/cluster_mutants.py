"""Deliberate bugs where several clusters are concerned; each breaks one of the invariants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outbox_api import ColumnIs
from outbox_cluster import ClusterAffinity
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Mark
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.sources import Sources

from .cluster_replica import BASE, Change, Row, since
from .cluster_scenario import KINDS, Parts, eligible


@dataclass(frozen=True)
class Mutant:
    """One deliberate bug.

    Attributes:
        name: Its name on the command line.
        says: What it does wrong.
        invariants: By which it may be caught.
        parts: The world with the bug in it.
        kinds: What may happen.
        fixed: What of the scenario is not drawn.
        budget: In how many histories it must be caught.
    """

    name: str
    says: str
    invariants: str
    parts: Parts
    kinds: Sequence[str] = KINDS
    fixed: Mapping[str, Any] = field(default_factory=dict)
    budget: int = 60


# --- the driver -----------------------------------------------------------------------------------------


class EarlyRank(ClusterAffinity):
    def rank(self, cluster: int) -> int:
        return super().rank(cluster) - 1


class LateRank(ClusterAffinity):
    def rank(self, cluster: int) -> int:
        return super().rank(cluster) + 1


class DistanceRank(ClusterAffinity):
    def rank(self, cluster: int) -> int:
        return abs(self._options.cluster_id - cluster)


class EveryoneNext(ClusterAffinity):
    def rank(self, cluster: int) -> int:
        return 1


def _own_and_next(affinity: ClusterAffinity, taken_over: tuple[int, ...]) -> Sequence[ColumnIs]:
    return eligible(affinity, taken_over)[:2]


def _deaf(affinity: ClusterAffinity, taken_over: tuple[int, ...]) -> Sequence[ColumnIs]:
    return eligible(affinity, ())


def _all_at_once(affinity: ClusterAffinity, taken_over: tuple[int, ...]) -> Sequence[ColumnIs]:
    conditions = eligible(affinity, taken_over)
    return [replace(each, older_than=0.0) for each in conditions] if taken_over else conditions


def _ageless(affinity: ClusterAffinity, taken_over: tuple[int, ...]) -> Sequence[ColumnIs]:
    return [replace(each, older_than=0.0) for each in eligible(affinity, taken_over)]


def _from_creation(affinity: ClusterAffinity, taken_over: tuple[int, ...]) -> Sequence[ColumnIs]:
    return [replace(each, since="create_time") for each in eligible(affinity, taken_over)]


# --- what dialects must keep ----------------------------------------------------------------------------


def _filter(rows: list[Row], condition: ColumnIs, clock: float) -> Iterator[Row]:
    for row in rows:
        old = condition.older_than == 0 or clock - since(row, condition) > condition.older_than
        if row.origin == condition.value and old:
            yield row


def _unfiltered(rows: list[Row], condition: ColumnIs, clock: float) -> Iterator[Row]:
    del condition, clock
    yield from rows


# --- core -----------------------------------------------------------------------------------------------


class OwnOnly(Sources):
    """Looks at no source but the own one."""

    def due(self, *, excludes: bool = False) -> float:
        return self._sources[0].due(excludes=excludes)

    def begin(self, now: float, *, excludes: bool = False) -> None:
        for source in self._sources[1:]:
            source.size.due = float("inf")
        super().begin(now, excludes=excludes)


class OthersFirst(Sources):
    """Looks at the own source now and then, as at any other."""

    def found(self, now: float, *, full: bool, empty: bool, grow: bool = True, passed: bool = False) -> None:
        super().found(now, full=full, empty=empty, grow=grow, passed=passed)
        if self._looking == 0:
            self._sources[0].size.due = now + 10.0


class TiredSources(Sources):
    """Gives up a source of another cluster that was found empty."""

    def found(self, now: float, *, full: bool, empty: bool, grow: bool = True, passed: bool = False) -> None:
        super().found(now, full=full, empty=empty, grow=grow, passed=passed)
        if self._looking and empty:
            self._sources[self._looking].size.due = float("inf")


def _with_sources(kind: type[Sources]) -> Parts:
    """Returns a world whose machines have other sources."""

    class Records(MarkPurgeReset):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self._sources.__class__ = kind

    class Batches(SelectPublishPurge):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._sources.__class__ = kind

    return Parts(records=Records, batches=Batches)


class WrongSource(MarkPurgeReset):
    """Marks always name the own source, whoever's turn it is."""

    def next_mark(self, now: float) -> Mark:
        return super().next_mark(now)._replace(source=0)


# --- set-ups --------------------------------------------------------------------------------------------


def _no_purges(change: Change, cluster: int) -> bool:
    del cluster
    return isinstance(change, Row)


def _own_purges(change: Change, cluster: int) -> bool:
    return isinstance(change, Row) or change // BASE == cluster


def _collect(*mutants: Mutant) -> Mapping[str, Mutant]:
    return {mutant.name: mutant for mutant in mutants}


_LOSS: Mapping[str, Any] = {"kinds": ("loss",)}

MUTANTS = _collect(
    Mutant("early-rank", "The next cluster takes rows at once", "C2", Parts(affinity=EarlyRank)),
    Mutant("late-rank", "A takeover begins one delay too late", "C5", Parts(affinity=LateRank), fixed=_LOSS),
    Mutant("distance-rank", "Two neighbours have the same rank", "C2", Parts(affinity=DistanceRank)),
    Mutant(
        "everyone-next", "All others take over after one delay", "C2 C3", Parts(affinity=EveryoneNext),
        fixed=_LOSS,
    ),
    Mutant("own-and-next", "Nobody follows the first successor", "C1 C5", Parts(eligible=_own_and_next)),
    Mutant("deaf-to-takeovers", "Deliberate takeovers are not heeded", "C5", Parts(eligible=_deaf)),
    Mutant("one-for-all", "A deliberate takeover is one of all clusters", "C2", Parts(eligible=_all_at_once)),
    Mutant("ageless", "Rows of others are taken at any age", "C2", Parts(eligible=_ageless)),
    Mutant(
        "from-creation", "Ages count from creation, though arrival is known", "C2",
        Parts(eligible=_from_creation),
        fixed={"arrival": True, "kinds": ("cut", "skew")},
    ),
    Mutant(
        "filter", "A row too young does not hold up those behind it", "C4", Parts(choose=_filter),
        fixed={"arrival": False, "kinds": ("loss", "steps"), "rate": 10.0},
    ),
    Mutant("unfiltered", "A source is all rows", "C2", Parts(choose=_unfiltered)),
    Mutant("own-only", "Other sources are never looked at", "C5 C1", _with_sources(OwnOnly)),
    Mutant("tired", "A source found empty is looked at no more", "C5 C1", _with_sources(TiredSources)),
    Mutant("others-first", "The own source is looked at now and then", "C5", _with_sources(OthersFirst)),
    Mutant(
        "wrong-source", "Every mark is of the own source", "C5 C1", Parts(records=WrongSource),
        fixed={"exactly_once": False},
    ),
    Mutant("no-purges", "Replication leaves out deletions", "C2 C3", Parts(replicates=_no_purges)),
    Mutant(
        "own-purges", "Replication leaves out deletions of rows that were taken over", "C3",
        Parts(replicates=_own_purges), fixed={**_LOSS, "count": 4},
    ),
)  # fmt: skip
"""Name → mutant; the last two are set-ups of replication that the product cannot bear."""
