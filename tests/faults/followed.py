"""Holds what harvesters have asked of database and broker against the model of exactly-once delivery."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import zip_longest

from ..model.followed import follow, table  # noqa: TID252 - pytest gives tests no absolute name
from ..model.scope import Fault  # noqa: TID252 - likewise
from .judge import Round
from .site import Site
from .table import Ran

_SLOW: frozenset[Fault] = frozenset({"timeout"})
_BROKEN: frozenset[Fault] = frozenset({"timeout", "loss", "cut"})
"""What may happen to a transaction if brokers end, too."""


def enter_actions(site: Site, rounds: Sequence[Round]) -> str:
    """Adds to each round the model's actions that its traces contain; a trace that is none is wrong.

    Returns:
        Why traces could not be followed, empty if they were.
    """
    files = [trace for each in site.fleet.harvesters if (trace := each.log.with_suffix(".trace")).exists()]
    skew = time.time() - time.monotonic()
    ends = any("broker" in each.fault.name for each in rounds) or site.setup.copies > 1
    untold = ""
    try:
        for found in follow(files, _BROKEN if ends else _SLOW, since=rounds[0].began - skew):
            if found.wrong:
                words = f"lane {found.lane}, key {found.key}: the model does not permit what was done"
                _at(rounds, found.at + skew).wrong.append(words)
                site.note("not of the model", lane=found.lane, key=found.key, found=found.wrong)
            for each, following in zip_longest(rounds, rounds[1:]):
                last = following.began if following else float("inf")
                each.actions.update(name for at, name in found.steps if each.began <= at + skew < last)
    except ValueError as error:
        untold = str(error)
    for each in rounds:
        site.note("actions", fault=each.fault.name, untold=untold, **each.actions)
    return untold


def _at(rounds: Sequence[Round], at: float) -> Round:
    return next((each for each in reversed(rounds) if each.began <= at), rounds[0])


def actions(ran: Sequence[Ran]) -> str:
    """Returns the table of the model's actions, and under which faults each was seen; empty without any."""
    seen: dict[str, set[str]] = {}
    for _, each in ran:
        for name in each.actions:
            seen.setdefault(name, set()).add(each.fault.name)
    return table(seen) if seen else ""
