"""``python -m tests.model``: explores the protocol, then what it would be without each of its rules."""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import get_args

from .ablations import ABLATIONS, BOUNDED, GAPS, SCOPES, Ablation, ablate
from .actions import ACTIONS, PREVENTED, Watched
from .checker import Found, explore
from .protocol import ExactlyOnce
from .scope import Rule


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument(
        "--without", choices=get_args(Rule), metavar="RULE", help="one rule, with the history"
    )
    parser.add_argument("--histories", action="store_true", help="print the history behind each ablation")
    options = parser.parse_args()
    if options.without:
        ablations = [each for each in (*ABLATIONS, *GAPS) if each.rule == options.without]
        caught = [_ablate(each, history=True) for each in ablations]
        return 0 if all(caught) else 1
    held = _explore()
    _list_actions()
    print(f"\n{'without the rule':52} {'breaks':10} {'states':>9} {'steps':>6}")
    caught = [_ablate(each, history=options.histories) for each in ABLATIONS]
    print("\na gap, excused above: the broker does not fence a lost at-least-once leader")
    shown = [_ablate(each, history=options.histories) for each in GAPS]
    print(f"\n{sum(caught)} of {len(caught)} ablations caught")
    return 0 if held and all(caught) and all(shown) else 1


def _explore() -> bool:
    """Explores all scopes; returns whether all properties hold."""
    began = time.monotonic()
    results: list[Found] = []
    print(f"{'scope':34} {'states':>10} {'transitions':>12} {'depth':>6}  violations")
    for scope in SCOPES:
        found = explore(ExactlyOnce(scope))
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


def _ablate(ablation: Ablation, *, history: bool) -> bool:
    found = ablate(ablation)
    breaks = found.wrong or "NOT CAUGHT"
    where = ablation.rule + ("" if ablation.scope.verifies else " (unverified)")
    print(f"{where:52} {breaks:10} {found.states:9,} {len(found.history):6}", flush=True)
    if history:
        _tell(found)
    return bool(found.wrong)


def _tell(found: Found) -> None:
    for number, words in enumerate(found.history, 1):
        print(f"  {number:3}  {words}")


if __name__ == "__main__":
    sys.exit(main())
