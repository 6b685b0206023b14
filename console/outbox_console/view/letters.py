"""What the page shows of a search among dead letters, as plain values: without I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from outbox_api.seams.parking import DeadLetter
from outbox_core.operations import LetterFilter
from outbox_core.settings.logs import KeyNames

from outbox_console.view.dead_letters import Letter, letter, sendable, short

AT_ONCE = 100
"""Dead letters of a page."""
MOST_FACETS = 10
"""Topics, and reasons, that are counted by name."""
SORTS: Mapping[str, Callable[[DeadLetter], Any]] = {
    "id": lambda found: found.record.id,
    "age": lambda found: -found.age,
    "attempts": lambda found: -found.attempts,
    "key": lambda found: found.record.key,
    "topic": lambda found: found.record.topic,
}
"""What a list is sorted by, then by id: the oldest, and the most attempts, come first."""
_REASON = re.compile(r"[^;\d]{8,80}")
"""That beginning of a reason that is likely to be the same for records with the same fault."""


@dataclass(frozen=True, slots=True)
class Facet:
    """How many of the letters that match share something."""

    value: str  # what is to be filtered by; empty if no address can name it
    shown: str
    count: str


@dataclass(frozen=True, slots=True)
class Matches:
    """A page of the letters that match."""

    total: int
    letters: Sequence[Letter]
    topics: Sequence[Facet]  # of those that match but for the topic
    reasons: Sequence[Facet]  # of those that match but for the reason
    more_topics: int  # how many topics are not named
    page: int
    pages: int


def matches(
    found: Sequence[DeadLetter], chosen: LetterFilter, names: KeyNames, sort: str, page: int
) -> Matches:
    """Returns a page of what a filter means, the first page being 1.

    Args:
        found: Dead letters of one state, by id.
        chosen: The filter.
        names: What log lines call keys.
        sort: One of ``SORTS``.
        page: Which; the last one if there are fewer.
    """
    matching = sorted(chosen.chosen(found, names), key=SORTS[sort])
    topics = Counter(each.record.topic for each in replace(chosen, topic=None).chosen(found, names))
    reasons = Counter(each.reason for each in replace(chosen, reason="").chosen(found, names))
    pages = max(1, ceil(len(matching) / AT_ONCE))
    page = min(max(page, 1), pages)
    shown = matching[(page - 1) * AT_ONCE : page * AT_ONCE]
    named = topics.most_common(MOST_FACETS)
    return Matches(
        total=len(matching),
        letters=[letter(each, names) for each in shown],
        topics=[Facet(sendable(topic), short(topic), f"{count:,}") for topic, count in named],
        reasons=_reasons(reasons),
        more_topics=len(topics) - len(named),
        page=page,
        pages=pages,
    )


def _reasons(reasons: Counter[str]) -> list[Facet]:
    """Counts by what reasons begin with: as often as a filter by it finds them."""
    kinds = Counter[str]()
    for reason, count in reasons.items():
        kinds[kind(reason)] += count
    del kinds[""]  # which all reasons contain
    folded = [(reason.casefold(), count) for reason, count in reasons.items()]
    facets = []
    for beginning, _ in kinds.most_common(MOST_FACETS):
        count = sum(number for reason, number in folded if beginning.casefold() in reason)
        facets.append(Facet(sendable(beginning), short(beginning), f"{count:,}"))
    return facets


def kind(reason: str) -> str:
    """Returns the beginning of a reason, up to what differs from record to record."""
    found = _REASON.match(reason)
    return (found[0] if found else reason[:80]).strip()
