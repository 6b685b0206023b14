"""The report's part about replicated brokers: sums of each kind of fault, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from .fault import EXACTLY_ONCE
from .judge import Round
from .replica_faults import REPLICA_FAULTS
from .site import Site
from .table import head, kills

_COUNTS = {
    "kills": "kills",
    "records": "records",
    "lost": "lost",
    "overtaken": "out of order",
    "foreign": "foreign",
    "repeated": "repeats",
}
_TRANSACTIONS = {"torn": "torn", "doubted": "in doubt", "doubted_found": "found in the log"}
"""Counts of exactly-once delivery alone."""


def enter(kind: dict[str, Any], each: Round) -> None:
    """Adds to a kind's results what a round with replicated brokers counts more than others."""
    if each.fault in REPLICA_FAULTS:
        kind["kills"] = kind.get("kills", 0) + (kills(each) or 0)
        for name in _TRANSACTIONS:
            kind[name] = kind.get(name, 0) + getattr(each, name)


def findings(seed: int, rounds: Iterable[Round], site: Site) -> list[dict[str, Any]]:
    """Returns what went wrong in rounds with replicated brokers."""
    return [
        {
            "fault": each.fault.name,
            "delivery": site.delivery,
            "seed": seed,
            "wrong": "; ".join(each.wrong),
            "evidence": each.evidence or f"files in {site.folder}",
        }
        for each in rounds
        if each.wrong and each.fault in REPLICA_FAULTS
    ]


def replicas(
    found: Iterable[tuple[str, str, str, Mapping[str, Any]]], wrong: Iterable[Mapping[str, Any]]
) -> str:
    """Returns the table and the list of this part.

    Args:
        found: Database, delivery, engine, and the results of its kinds.
        wrong: What :func:`findings` has returned.
    """
    everything = list(found)
    rows = []
    for fault in REPLICA_FAULTS:
        for title, delivery, engine, kinds in everything:
            if kind := kinds.get(fault.name):
                cells = [f"`{fault.name}`", title, f"`{delivery}`", f"`{engine}`", *_numbers(kind, delivery)]
                rows.append(f"| {' | '.join(cells)} |\n")
    names = (*_COUNTS.values(), *_TRANSACTIONS.values())
    columns = ("fault", "database", "delivery", "engine", "rounds", "median stall", "longest stall", *names)
    items = [
        f"* `{each['fault']}`, `{each['delivery']}`, seed {each['seed']}: {each['wrong']}. "
        f"{each['evidence']}.\n"
        for each in wrong
    ]
    return head((*columns, "went wrong"), 4) + "".join(rows) + ("\n" if items else "") + "".join(items)


def _numbers(kind: Mapping[str, Any], delivery: str) -> list[str]:
    stalls = [stall for stall, _ in kind["stalls"]]
    times = [f"{seconds:.1f} s" for seconds in (median(stalls), max(stalls))] if stalls else ["-", "-"]
    counts = [f"{kind.get(name, 0):,}" for name in _COUNTS]
    more = [f"{kind.get(name, 0):,}" if delivery == EXACTLY_ONCE else "-" for name in _TRANSACTIONS]
    return [str(kind["rounds"]), *times, *counts, *more, str(kind["wrong"])]
