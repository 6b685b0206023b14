"""The report's part about replicated brokers: sums of each kind of fault, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .fault import EXACTLY_ONCE
from .judge import Round
from .replica_faults import REPLICA_FAULTS
from .site import Site
from .table import head, kills

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
    places = [kinds for _, delivery, _, kinds in found if delivery == EXACTLY_ONCE]
    rows = []
    for name in (fault.name for fault in REPLICA_FAULTS):
        if of := [kinds[name] for kinds in places if name in kinds]:
            cells = [f"{sum(kind[count] for kind in of):,}" for count in ("rounds", "kills", *_TRANSACTIONS)]
            rows.append(f"| {' | '.join([f'`{name}`', *cells])} |\n")
    items = [
        f"* `{each['fault']}`, `{each['delivery']}`, seed {each['seed']}: {each['wrong']}. "
        f"{each['evidence']}.\n"
        for each in wrong
    ]
    columns = ("fault, exactly-once", "rounds", "kills", *_TRANSACTIONS.values())
    return "\n".join("".join(part) for part in ([head(columns, 1), *rows] if rows else [], items) if part)
