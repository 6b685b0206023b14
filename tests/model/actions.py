"""The kinds of steps that there are, by which a run can tell which of them it has covered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from .lane_view import Step
from .protocol import ExactlyOnce
from .scope import Rule, Scope
from .world import World

ACTIONS = {
    "end sent twice": r".*is sent twice$",
    # of leaders
    "is elected": r"is elected",
    "is told to hand over": r"is told to hand over",
    "is drained": r"is drained",
    "finds that it is fenced": r"finds that it is fenced",
    # of lanes that begin, or are settled
    "enters": r"enters$",
    "looks at its note": r"looks at its note",
    "opens its producer": r"opens its producer",
    "opens the former producer": r"opens the former producer",
    "reads the checkpoint": r"reads the checkpoint",
    "finds the checkpoint forgotten": r"finds the checkpoint forgotten",
    "reads rows of the attempt": r"reads rows \S.* of the attempt",
    "finds rows in the log": r"finds rows \S.* in the log",
    "purges": r"purges \[[^a-z]*(but for \[[^a-z]*)?$",
    "commits the checkpoint": r"commits the checkpoint",
    "notes that it transacts": r"notes that it transacts",
    "deletes the note": r"deletes the note$",
    # of lanes of exactly-once delivery
    "asks for an advance": r"asks",
    "purges and selects": r".*and selects",
    "sends in a transaction": r"sends rows .* with checkpoint",
    "commits": r"has rows .* committed",
    "parks": r"parks the key",
    "is fenced by the broker": r"is fenced by the broker",
    "is contradicted": r"is contradicted",
    "needs a new producer": r"needs a new producer",
    # of lanes of at-least-once delivery
    "marks": r"marks ",
    "sends": r"sends ",
    "purges what it sent": r"purges ",
    # of what happens by itself
    "row is committed": r"row \d+ is committed",
    "key is freed": r"row \d+, and its key, is freed",
    "broker completes": r"the broker completes",
    "broker shows": r"the broker shows",
    "late call": r"a late call is carried out",
    "late commit": r"a late commit ends",
    "late abort": r"a late abort ends",
    # faults
    "crash": r"crashes$",
    "crash of the database": r"the database crashes",
    "waits in vain": r"waits in vain",
    "bump on its way": r"a bump for \d+ lanes is on its way",
    "aborts": r"aborts rows",
    "timeout": r"the transaction of .* times out",
    "loss": r"the broker loses",
    "tear": r"the broker tears",
    "compaction": r"the broker compacts",
    "forgotten": r"the broker forgets",
    "grown old": r"has grown old",
    "runs twice": r"runs these lanes as well",
}
"""Name → how the words of such steps begin, behind who does it; the first that fits counts."""

PREVENTED = {"late commit", "late abort"}
"""What does not happen while no rule is off."""

_WHO = re.compile(r"process \d+(, lane \d+( \(settles\))?:)? ")


@cache  # there are few words for many steps
def action(words: str) -> str:
    """Returns the kind of a step.

    Raises:
        ValueError: It is of none.
    """
    words = words[who.end() :] if (who := _WHO.match(words)) else words
    for name, pattern in ACTIONS.items():
        if re.match(pattern, words):
            return name
    raise ValueError(f"of no kind: {words}")


class Watched(ExactlyOnce):
    """The protocol, and how many steps of each kind were looked at.

    Attributes:
        counts: Action → steps.
    """

    def __init__(self, scope: Scope, off: frozenset[Rule] = frozenset()) -> None:
        super().__init__(scope, off)
        self.counts: Counter[str] = Counter()

    def steps(self, world: World) -> Iterator[Step]:
        for words, after in super().steps(world):
            self.counts[action(words)] += 1
            yield words, after
