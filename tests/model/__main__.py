"""``python -m tests.model``: explores the protocol, then what it would be without each of its rules."""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, get_args

from . import run_ablations
from .ablations import ABLATIONS, BOUNDED, GAPS, SCOPES, UNVERIFIED, ablate
from .actions import ACTIONS, PREVENTED, Watched
from .checker import Found, explore
from .protocol import ExactlyOnce
from .run_ablations import explore_runs
from .runs.scope import Rule as RuleOfRuns
from .scope import Rule


class _Part(NamedTuple):
    """What is explored of one delivery."""

    scopes: Sequence[Any]
    explore: Callable[[Any], Found]
    ablations: Sequence[Any]
    gaps: Sequence[Any]
    ablate: Callable[[Any], Found]


_EXACTLY_ONCE = _Part(SCOPES, lambda scope: explore(ExactlyOnce(scope)), ABLATIONS, GAPS, ablate)
_RUNS = _Part(
    run_ablations.SCOPES, explore_runs, run_ablations.ABLATIONS, run_ablations.GAPS, run_ablations.ablate_runs
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    rules = (*get_args(Rule), *get_args(RuleOfRuns))
    parser.add_argument("--without", choices=rules, metavar="RULE", help="one rule, with the history")
    parser.add_argument("--runs", action="store_true", help="only runs of at-least-once delivery")
    parser.add_argument("--histories", action="store_true", help="print the history behind each ablation")
    options = parser.parse_args()
    parts = (_RUNS,) if options.runs else (_EXACTLY_ONCE, _RUNS)
    if options.without:
        tried = [(part, each) for part in parts for each in (*part.ablations, *part.gaps)]
        chosen = [(part, each) for part, each in tried if each.rule == options.without]
        caught = [_ablate(*each, history=True) for each in chosen]
        return 0 if all(caught) else 1
    held = _explore(parts)
    if not options.runs:
        _list_actions()
    print(f"\n{'without the rule':52} {'breaks':10} {'states':>9} {'steps':>6}")
    show = partial(_ablate, history=options.histories)
    caught = [show(part, each) for part in parts for each in part.ablations]
    print("\ngaps, excused above: what a lost at-least-once leader still sends")
    shown = [show(part, each) for part in parts for each in part.gaps]
    print(f"\n{sum(caught)} of {len(caught)} ablations caught")
    return 0 if held and all(caught) and all(shown) else 1


def _explore(parts: Iterable[_Part]) -> bool:
    """Explores all scopes; returns whether all properties hold."""
    began = time.monotonic()
    results: list[Found] = []
    print(f"{'scope':34} {'states':>10} {'transitions':>12} {'depth':>6}  violations")
    for scope, explored in [(scope, part.explore) for part in parts for scope in part.scopes]:
        found = explored(scope)
        results.append(found)
        print(f"{scope.name:34} {_numbers(found)}  {found.wrong or 0}", flush=True)
        _tell(found)
    states, transitions = sum(each.states for each in results), sum(each.transitions for each in results)
    violations = sum(bool(each.wrong) for each in results)
    depth = max(each.depth for each in results)
    total = _numbers(Found(states, transitions, depth, "", ()))
    print(f"{'all':34} {total}  {violations}, in {time.monotonic() - began:.0f} s")
    return not violations


def _list_actions() -> None:
    """Prints all kinds of steps, and how many of each the small scopes have."""
    counts: Counter[str] = Counter()
    for scope in BOUNDED:
        explore(watched := Watched(scope))
        counts += watched.counts
    print(f"\n{'action':34} {'steps, in small':>16}")
    for each in ACTIONS:
        print(f"{each:34} {counts[each]:16,}{'  prevented' if each in PREVENTED else ''}")


def _numbers(found: Found) -> str:
    return f"{found.states:10,} {found.transitions:12,} {found.depth:6}"


def _ablate(part: _Part, ablation: Any, *, history: bool) -> bool:
    found = part.ablate(ablation)
    breaks = found.wrong or "NOT CAUGHT"
    where = ablation.rule + (" (unverified)" if ablation.scope is UNVERIFIED else "")
    print(f"{where:52} {breaks:10} {found.states:9,} {len(found.history):6}", flush=True)
    if history:
        _tell(found)
    return bool(found.wrong)


def _tell(found: Found) -> None:
    for number, words in enumerate(found.history, 1):
        print(f"  {number:3}  {words}")


if __name__ == "__main__":
    sys.exit(main())
