"""What is explored of runs, and what they would be without each of their rules, which must show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from .checker import Found, explore
from .runs.protocol import Runs
from .runs.scope import Fault, Rule, Scope
from .runs.without import without

Property = Literal["loss", "order", "repeats", "stale", "parked"]


def _any(*menu: Fault) -> frozenset[Fault]:
    return frozenset(menu)


_ALL = _any(*get_args(Fault))
_SENT = _any("crash", "refuse", "unready", "timeout")
_LATE = frozenset({1, 2})
SCOPES = (
    Scope("one key, three faults", (0, 0, 0), 3, 3, _ALL - {"restart"}),
    Scope("one key, runs of two, two faults", (0,) * 4, 2, 2, _ALL),
    Scope("one key, runs of four, two faults", (0,) * 5, 4, 2, _SENT | {"lapse", "lock"}),
    Scope("late rows, two faults", (0, 0, 0), 3, 2, _ALL, _LATE),
    Scope("two partitions, two faults", (0, 0, 0), 3, 2, _ALL, partitions=2),
    Scope("two keys, two faults", (0, 0, 1, 1), 2, 2, _SENT | {"lapse", "lock", "drain"}),
    Scope("two keys, two partitions", (0, 0, 1, 1), 2, 1, _ALL, partitions=2),
    Scope("two keys, runs of three", (0, 1, 0, 1, 0, 1), 3, 1, _SENT),
    Scope("two keys, late rows", (0, 0, 1, 1), 2, 1, _SENT | {"lapse", "lock"}, frozenset({1, 3})),
    Scope("small marks, two faults", (0, 0, 0), 2, 2, _any("crash", "lapse", "lock", "restart"), mark=1),
)
"""All that runs are tried in."""
BOUNDED = (
    Scope("one key, in small", (0, 0, 0), 3, 1, _ALL),
    Scope("two faults, in small", (0, 0, 0), 2, 2, _any("crash", "lapse", "refuse", "doubt")),
    Scope("runs of four, in small", (0,) * 4, 4, 2, _SENT),
    Scope("a late row, in small", (0, 0, 0), 2, 1, _SENT | {"lapse", "lock"}, frozenset({2})),
    Scope("two partitions, in small", (0, 0, 0), 3, 1, _SENT, partitions=2),
    Scope("parked keys, in small", (0, 0, 0), 3, 2, _any("park", "crash", "refuse")),
    Scope("two keys, in small", (0, 0, 1, 1), 2, 1, _any("crash", "refuse")),
    Scope("locked rows, in small", (0, 0), 2, 2, _any("crash", "lapse", "lock")),
)
"""The same in small, for every run of the tests."""


@dataclass(frozen=True)
class Ablation:
    """A rule that is off; see :class:`.ablations.Ablation`."""

    rule: Rule
    breaks: Property
    scope: Scope


ABLATIONS = (
    Ablation("the first record goes alone", "order", Scope("", (0, 0), 2, 0)),
    Ablation("a run has one partition", "order", Scope("", (0, 0), 2, 0, partitions=2)),
    Ablation("a run is bounded", "repeats", Scope("", (0, 0, 0), 2, 0)),
    Ablation("the next run waits for the purge", "repeats", Scope("", (0, 0, 0), 2, 0)),
    Ablation(
        "mark anew when a purge finds too few rows", "repeats", Scope("", (0,) * 3, 2, 1, _any("restart"))
    ),
    Ablation("purge only what is acknowledged", "loss", Scope("", (0, 0), 2, 1, _any("refuse"))),
    Ablation(
        "nothing is written behind a refused record", "order", Scope("", (0,) * 4, 4, 1, _any("refuse"))
    ),
    Ablation("a new producer's first record goes alone", "order", Scope("", (0,) * 3, 3, 1, _any("unready"))),
    Ablation("purge none behind a locked row", "stale", Scope("", (0, 0), 2, 2, _any("crash", "lock"))),
    Ablation("leave out parked keys", "parked", Scope("", (0,), 2, 1, _any("park"))),
    Ablation("the fence refuses late calls", "stale", Scope("", (0, 0), 2, 2, _any("doubt", "lapse"))),
)
"""Each must be caught."""
GAPS = (Ablation("late requests are gone", "stale", Scope("", (0, 0, 0), 3, 1, _any("crash"))),)
"""What is not promised: that a lost leader's requests arrive before its successor has written, or never."""


def explore_runs(scope: Scope, off: frozenset[Rule] = frozenset(), sought: str = "") -> Found:
    """Explores a scope, without some rules."""
    with without(off):
        return explore(Runs(scope, off), sought)


def ablate_runs(ablation: Ablation) -> Found:
    """Explores runs without a rule, up to the shortest history that breaks the property named."""
    return explore_runs(ablation.scope, frozenset({ablation.rule}), ablation.breaks)


if {each.rule for each in (*ABLATIONS, *GAPS)} != set(get_args(Rule)):
    raise TypeError("every rule has its ablation")
