"""What the page shows of all outboxes, as plain values: without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outbox_core.status.model import Status, worst_first
from outbox_core.status.verdict import State
from outbox_core.text.wording import about, natural

FOLDED = 4
"""From how many outboxes on with the same problem in the same database they are one line."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of all outboxes together, as far as they are known."""

    well: str
    backlog: str
    rate: str
    parked: str


@dataclass(frozen=True, slots=True)
class Fold:
    """Outboxes of a database that have the same problem, so that one cause is likely."""

    id: str  # of its element: the same as long as it is about the same
    state: State
    said: str
    code: str  # the problem; empty if there are several, or none is known
    why: str  # what is known of the first of them
    outboxes: Sequence[Status]


@dataclass(frozen=True, slots=True)
class Overview:
    """All outboxes, or those that were searched for."""

    totals: Totals
    folds: Sequence[Fold]
    sick: Sequence[Status]  # those with problems of their own, the worst first
    well: Mapping[str, Sequence[Status]]  # database → its outboxes without problems
    several: bool  # whether there are several databases
    shown: int  # how many outboxes are among these


def overview(
    outboxes: Sequence[Status], databases: Mapping[str, str], search: str = "", *, problems: bool = False
) -> Overview:
    """Arranges outboxes.

    Args:
        outboxes: All of them.
        databases: Their titles → what their databases are called.
        search: What titles must contain, in letters of either case.
        problems: Whether only those with problems are shown.
    """
    alike: dict[tuple[str, State, frozenset[str]], list[Status]] = {}
    well: dict[str, list[Status]] = {}
    for each in worst_first(outboxes):
        if search.casefold() not in each.title.casefold():
            continue
        database, state = databases[each.title], each.verdict.state
        if state is not State.WELL:
            codes = frozenset(str(reason.code) for reason in each.verdict.reasons)
            alike.setdefault((database, state, codes), []).append(each)
        elif not problems:
            well.setdefault(database, []).append(each)
    folds = [_fold(*what, found) for what, found in alike.items() if len(found) >= FOLDED]
    sick = worst_first([each for found in alike.values() if len(found) < FOLDED for each in found])
    return Overview(
        _totals(outboxes),
        folds,
        sick,
        dict(sorted(well.items(), key=lambda item: natural(item[0]))),
        several=len(set(databases.values())) > 1,
        shown=sum(map(len, (*alike.values(), *well.values()))),
    )


def _totals(outboxes: Sequence[Status]) -> Totals:
    figures = [each.figures for each in outboxes if each.figures]
    well = sum(each.verdict.state is State.WELL for each in outboxes)
    return Totals(
        well=f"{well:,} of {len(outboxes):,}",
        backlog=about(sum(each.records for each in figures), exact=all(each.exact for each in figures)),
        rate=f"{sum(each.per_second for each in figures):,.0f}",
        parked=f"{sum(each.parked_keys for each in figures):,}",
    )


def _fold(database: str, state: State, codes: frozenset[str], found: Sequence[Status]) -> Fold:
    first = found[0].verdict
    said = "no answer" if state is State.AWAY else first.said.rstrip(".").lower()
    return Fold(
        id="-".join((state, *sorted(codes), database)),
        state=state,
        said=f"{database}: {said}: {len(found):,} outboxes",
        code=next(iter(codes)) if len(codes) == 1 else "",
        why=first.reasons[0].text if first.reasons else "",
        outboxes=found,
    )
