"""What is explored, and what the protocol would be without each of its rules, which must show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from .checker import Found, explore
from .protocol import ExactlyOnce
from .scope import Fault, Rule, Scope, Setting

_ALIKE = (Setting(), Setting())
_LANES = (Setting(lanes=2), Setting(lanes=1))
_MODES = (Setting(), Setting(once=False))
_NAMES = (Setting(), Setting(name=1))
_PLACES = (Setting(), Setting(place=1))
_MOVED = (Setting(), Setting(name=1, place=1))
_LATE = frozenset({1})


def _any_rows(*rows: int) -> frozenset[int]:
    return frozenset(rows)


def _any(*menu: Fault) -> frozenset[Fault]:
    return frozenset(menu)


_NONE = _any_rows()
_TORN = _any("tear", "crash")
_CUT = _any("cut", "crash")
_TWICE = _any("repeat", "crash")
_FAULTS = _any("crash", "doubt", "abort", "timeout", "loss", "restart", "age")
SCOPES = (
    Scope("two leaders, a fault", _ALIKE, (0, 0), menu=_FAULTS | {"bump"}),
    Scope(
        "two leaders, two faults", _ALIKE, (0,), faults=2, menu=_any("crash", "doubt", "timeout", "restart")
    ),
    Scope(
        "two leaders, two lost transactions", _ALIKE, (0, 0), faults=2, menu=_any("abort", "timeout", "loss")
    ),
    Scope("three faults", _ALIKE, (0, 0), terms=0, faults=3, menu=_FAULTS),
    Scope("three leaders", (Setting(),) * 3, (0, 0), terms=2, faults=0),
    Scope("three batches", _ALIKE, (0, 0, 0), menu=_any("abort", "crash")),
    Scope("a late row, batches of two", _ALIKE, (0, 1, 0), _LATE, (1, 2), faults=0),
    Scope(
        "a late row, a fault", _ALIKE, (0, 1, 0), _LATE, (1, 2), terms=0, menu=_any("crash", "doubt", "abort")
    ),
    Scope("late rows, batches of two", _ALIKE, (0, 1, 1, 0), _any_rows(1, 2), (2,), terms=0, faults=0),
    Scope("parked keys", _ALIKE, (0, 0, 1), limits=(1, 2), menu=_any("park")),
    Scope("parked keys, two faults", _ALIKE, (0, 0), terms=0, faults=2, menu=_any("park", "crash", "doubt")),
    Scope("locked rows", _ALIKE, (0, 1, 0), limits=(2,), terms=0, faults=2, menu=_any("lock", "crash")),
    Scope("locked rows, two leaders", _ALIKE, (0, 0), faults=2, menu=_any("lock", "doubt")),
    Scope(
        "ids given out anew", _ALIKE, (0, 0, 0), _any_rows(1, 2), ids=(0, 0, 1), menu=_any("crash", "abort")
    ),
    Scope(
        "ids given out anew, locked rows",
        _ALIKE,
        (0, 1, 0, 0),
        _any_rows(2, 3),
        (2,),
        0,
        2,
        _any("lock", "crash"),
        (0, 1, 0, 1),
    ),
    Scope("selections without the fence", _ALIKE, (0, 0), menu=_any("blind", "crash", "doubt")),
    Scope("selections without the fence, two names", _NAMES, (0, 0), terms=2, faults=0, menu=_any("blind")),
    Scope("torn transactions", _ALIKE, (0, 1), limits=(2,), faults=2, menu=_any("tear", "crash")),
    Scope("torn, three keys", _ALIKE, (0, 1, 2), limits=(3,), faults=2, menu=_any("tear")),
    Scope("torn, a later row", _ALIKE, (0, 1, 0), limits=(2,), menu=_any("tear")),
    Scope("torn, equal records", _ALIKE, (0, 0, 1), _NONE, (1, 2), 0, 2, _TORN, (), (0, 0, 1)),
    Scope("torn, two faults", _ALIKE, (0, 1), limits=(2,), faults=2, menu=_any("tear", "restart", "doubt")),
    Scope("torn, locked rows", _ALIKE, (0, 1), _NONE, (1, 2), 0, 3, _TORN | {"lock", "doubt"}),
    Scope("torn, parked keys", _ALIKE, (0, 1, 0), _NONE, (2,), 0, 2, _any("tear", "park", "abort")),
    Scope("torn, ids given out anew", _ALIKE, (0, 1, 0, 0), _any_rows(2, 3), (2,), 0, 3, _TORN, (0, 1, 0, 1)),
    Scope("torn, a late log", _ALIKE, (0, 1), limits=(2,), menu=_any("tear", "late log")),
    Scope("torn, 2 lanes and 1", _LANES, (1, 3), limits=(2,), terms=0, faults=2, menu=_TORN),
    Scope("torn, both modes", _MODES, (0, 1), limits=(2,), faults=2, menu=_TORN),
    Scope("torn, other name and place", _MOVED, (0, 1), limits=(2,), menu=_any("tear")),
    Scope("torn within a key", _ALIKE, (0, 0, 1), limits=(3,), menu=_any("cut")),
    Scope("torn within a key, two crashes", _ALIKE, (0, 0, 1), _NONE, (3,), 0, 3, _CUT),
    Scope("torn within a key, equal records", _ALIKE, (0, 0, 0), _NONE, (3,), 0, 3, _CUT, contents=(0, 0, 0)),
    Scope("torn within a key, two batches", _ALIKE, (0, 0, 0), _NONE, (1, 2), 0, 2, _CUT),
    Scope("torn within a key, a compacted log", _ALIKE, (0, 0, 0), _NONE, (2,), 0, 2, _CUT | {"compact"}),
    Scope("a compacted log", _ALIKE, (0, 0), _NONE, (1, 2), 0, 2, _any("compact", "crash", "doubt")),
    Scope("ends sent twice", _ALIKE, (0, 1), limits=(2,), faults=2, menu=_any("repeat")),
    Scope("ends sent twice, three faults", _ALIKE, (0, 0), _NONE, (1, 2), 0, 3, _TWICE | {"doubt", "abort"}),
    Scope("ends sent twice, parked keys", _ALIKE, (0, 0), _NONE, (1, 2), 0, 2, _any("repeat", "park")),
    Scope("ends sent twice, torn", _ALIKE, (0, 1), _NONE, (2,), 0, 3, _TORN | {"repeat", "timeout", "loss"}),
    Scope("ends sent twice, unverified", _ALIKE, (0, 1, 1), _NONE, (2,), 1, 1, _TWICE, verifies=False),
    Scope("ends sent twice, 2 lanes and 1", _LANES, (1,), terms=0, faults=2, menu=_TWICE),
    Scope("ends sent twice, both modes", _MODES, (0, 1), limits=(2,), menu=_TWICE),
    Scope("ends sent twice, other name and place", _MOVED, (0,), menu=_TWICE),
    Scope("ends sent twice, lanes run twice", _ALIKE, (0,), terms=0, faults=2, menu=_any("repeat", "rerun")),
    Scope("lanes run twice", _ALIKE, (0, 0), terms=0, menu=_any("rerun")),
    Scope("a late log", _ALIKE, (0,), menu=_any("crash", "doubt", "late log")),
    Scope("forgotten checkpoints", _ALIKE, (0,), faults=2, menu=_any("crash", "forget")),
    Scope("2 lanes and 1, locked rows", _LANES, (0, 1), terms=0, faults=2, menu=_any("lock", "crash")),
    Scope("both modes, locked rows", _MODES, (0,), terms=2, menu=_any("lock", "crash"), faults=2),
    Scope("both modes, ids given out anew", _MODES, (0, 0), _LATE, terms=2, menu=_any("crash"), ids=(0, 0)),
    Scope("2 lanes and 1", _LANES, (0, 1), faults=0),
    Scope("2 lanes and 1, a crash", _LANES, (0, 1), terms=0, menu=_any("crash")),
    Scope("2 lanes and 1, changed twice", _LANES, (1,), terms=2, faults=0),
    Scope("2 lanes and 1, two faults", _LANES, (1,), terms=0, faults=2, menu=_any("crash", "doubt")),
    Scope(
        "2 lanes and 1, forgotten checkpoints", _LANES, (1,), terms=0, faults=2, menu=_any("crash", "forget")
    ),
    Scope("2 lanes, and at-least-once", (Setting(lanes=2), Setting(once=False)), (0, 1), faults=0),
    Scope("both modes, a fault", _MODES, (0, 0), menu=_any("crash", "doubt", "restart")),
    Scope("both modes, changed twice", _MODES, (0, 0), terms=2, faults=0),
    Scope("both modes, twice, a fault", _MODES, (0,), terms=2, menu=_any("crash", "doubt", "restart")),
    Scope("two names, changed twice", _NAMES, (0, 0), terms=2, faults=0),
    Scope("two names, two faults", _NAMES, (0,), terms=0, faults=2, menu=_any("crash", "doubt")),
    Scope("two places, changed twice", _PLACES, (0, 0), terms=2, faults=0),
    Scope("two places, two faults", _PLACES, (0,), terms=0, faults=2, menu=_any("crash", "doubt")),
    Scope("other name and place, twice", _MOVED, (0,), terms=2, menu=_any("crash", "doubt", "late log")),
)
"""All that the protocol is tried in."""
BOUNDED = (
    Scope("two leaders, in small", _ALIKE, (0, 0), faults=0),
    Scope("two faults, in small", _ALIKE, (0,), terms=0, faults=2, menu=_FAULTS),
    Scope("a bump on its way, in small", _ALIKE, (0,), terms=0, menu=_any("bump")),
    Scope("three batches, in small", _ALIKE, (0, 0, 0), terms=0, menu=_FAULTS),
    Scope("a late log, in small", _ALIKE, (0,), terms=0, faults=2, menu=_any("crash", "late log")),
    Scope("parked keys, in small", _ALIKE, (0, 0), limits=(1, 2), terms=0, menu=_any("park")),
    Scope(
        "locked rows, in small", _ALIKE, (0, 1), limits=(2,), terms=0, faults=2, menu=_any("lock", "crash")
    ),
    Scope("ids given out anew, in small", _ALIKE, (0, 0), _LATE, terms=0, menu=_any("crash"), ids=(0, 0)),
    Scope("torn, in small", _ALIKE, (0, 1), limits=(2,), terms=0, menu=_any("tear")),
    Scope("torn twice, in small", _ALIKE, (0, 1, 0), limits=(2,), terms=0, faults=2, menu=_TORN),
    Scope("torn, both modes, in small", _MODES, (0, 1), limits=(2,), menu=_any("tear")),
    Scope("torn, other name and place, in small", _MOVED, (0, 1), _NONE, (2,), 0, 2, _TORN),
    Scope("torn within a key, equal records, in small", _ALIKE, (0, 0), _NONE, (2,), 0, 2, _CUT, (), (0, 0)),
    Scope("torn within a key, in small", _ALIKE, (0, 0, 1), limits=(3,), terms=0, menu=_any("cut")),
    Scope(
        "compacted, in small", _ALIKE, (0, 0), limits=(2,), terms=0, faults=2, menu=_any("compact", "crash")
    ),
    Scope("ends sent twice, in small", _ALIKE, (0, 1), limits=(2,), terms=0, faults=2, menu=_TWICE),
    Scope("ends sent twice, unverified, in small", _ALIKE, (0, 1), _NONE, (2,), 0, 1, _TWICE, verifies=False),
    Scope("forgotten checkpoints, in small", _ALIKE, (0,), menu=_any("forget")),
    Scope("lanes run twice, in small", _ALIKE, (0,), terms=0, menu=_any("rerun")),
    Scope("2 lanes and 1, in small", _LANES, (1,), faults=0),
    Scope("2 lanes and 1, forgotten, in small", _LANES, (1,), terms=0, menu=_any("crash", "forget")),
    Scope("both modes, in small", _MODES, (0,), terms=2, faults=0),
    Scope("other name and place, in small", _MOVED, (0,), menu=_any("crash")),
)
"""The same in small, for every run of the tests."""

Property = Literal["duplicate", "loss", "order", "parked", "stuck"]


@dataclass(frozen=True)
class Ablation:
    """A rule that is off.

    Attributes:
        rule: Which.
        breaks: The property that it breaks.
        scope: Where that shows.
    """

    rule: Rule
    breaks: Property
    scope: Scope


_LATE_ENDS_BREAK: tuple[Property, ...] = ("loss", "duplicate", "order")
ENDS: Rule = "end a producer after an end in doubt"
_ZOMBIE = Scope("zombie", _ALIKE, (0,), faults=0)
_RESTART = Scope("database crash", _ALIKE, (0, 0), terms=0, menu=_any("restart"))
_CRASH = Scope("crash", _ALIKE, (0, 0), terms=0, menu=_any("crash"))
_CRASHES = Scope("two crashes", _ALIKE, (0, 0), terms=0, faults=2, menu=_any("crash"))
_LATE_ROW = Scope("late row", _ALIKE, (0, 1, 0), _LATE, (1, 2), terms=0, faults=0)
_LATE_ALONE = Scope("late row, alone", (Setting(),), (0, 1, 0), _LATE, (1, 2), terms=0, faults=0)
_PARKED = Scope("parked", _ALIKE, (0, 0), limits=(1, 2), terms=0, menu=_any("park"))
_LOCKED = Scope("locked", _ALIKE, (0, 0), terms=0, faults=2, menu=_any("lock", "crash"))
_LOCKED_DRAINED = Scope("locked, drained", _MODES, (0,), faults=1, menu=_any("lock"))
_LOCKED_CHANGED = Scope("locked, lanes changed", _LANES, (1,), terms=0, faults=2, menu=_any("lock", "crash"))
_REUSED = Scope("reused ids", _ALIKE, (0, 0, 0), _any_rows(1, 2), terms=0, menu=_any("crash"), ids=(0, 0, 1))
_LOCKED_CRASHES = Scope("locked, two crashes", _ALIKE, (0, 0), terms=0, faults=3, menu=_any("lock", "crash"))
_PARKED_LATE = Scope("parked late", _ALIKE, (0,), terms=0, faults=2, menu=_any("park", "doubt"))
_RENAMED = Scope("renamed, no terms", _NAMES, (0,), terms=0, faults=0)
_ABORT = Scope("abort", _ALIKE, (0, 0), terms=0, menu=_any("abort"))
_PARTS = Scope("part of a batch", _ALIKE, (0, 0), limits=(2,), terms=0, menu=_any("abort"))
_UNKNOWN = Scope("unknown commit", _ALIKE, (0,), terms=0, faults=2, menu=_any("doubt", "timeout"))
_CHANGED = Scope("lanes changed", _LANES, (1,), terms=0, menu=_any("crash"))
_SWITCHED = Scope("mode changed", _MODES, (0,), faults=0)
_FORGOTTEN = Scope("forgotten", _ALIKE, (0,), faults=1, menu=_any("forget"))
_CHANGED_FORGOTTEN = Scope(
    "lanes changed, forgotten", _LANES, (1,), terms=0, faults=2, menu=_any("crash", "forget")
)
_NAMED = Scope("renamed", _NAMES, (0,), terms=2, faults=0)
_MOVED_TWICE = Scope("moved", _PLACES, (0,), terms=0, faults=2, menu=_any("crash"))
_FORGOTTEN_ALIVE = Scope("forgotten, alive", _ALIKE, (0,), faults=2, menu=_any("crash", "forget"))
_TORN_ALONE = Scope("torn", _ALIKE, (0,), terms=0, menu=_any("tear"))
_EQUAL = Scope("equal", _ALIKE, (0, 0), terms=0, menu=_any("crash"), contents=(0, 0))
CUT = Scope("cut", _ALIKE, (0, 0), limits=(2,), terms=0, menu=_any("cut"))
COMPACTED_LOG = Scope(
    "compacted", _ALIKE, (0, 0), limits=(2,), terms=0, faults=2, menu=_any("compact", "crash")
)
_CUT_EQUAL = Scope("cut, equal", _ALIKE, (0, 0), _NONE, (2,), 0, 2, _CUT, contents=(0, 0))
_TORN_KEYS = Scope("torn, two keys", _ALIKE, (0, 1), limits=(2,), terms=0, menu=_any("tear"))
LATE_END = Scope("late end", _ALIKE, (0, 0), limits=(1, 2), terms=0, faults=2, menu=_any("repeat"))
UNVERIFIED = Scope("unverified", _ALIKE, (0, 0), _NONE, (1, 2), 0, 2, _any("repeat"), verifies=False)
_UNSTABLE = Scope("late log", _ALIKE, (0,), terms=0, menu=_any("crash", "late log"))

ABLATIONS = (
    Ablation("delete the set", "loss", _LATE_ROW),
    Ablation("delete after the commit", "loss", _ABORT),
    Ablation("durable purge", "duplicate", _RESTART),
    Ablation("see lower ids", "stuck", _LATE_ALONE),
    Ablation("leave out what is pending", "duplicate", _ZOMBIE),
    Ablation("leave out what is being purged", "duplicate", _ZOMBIE),
    Ablation("guard the deletion", "loss", _REUSED),
    Ablation("guard the selection", "order", _REUSED),
    Ablation("unknown never purges", "loss", _UNKNOWN),
    Ablation("abandon what is selected behind", "order", _ABORT),
    Ablation("what goes on has no gap in a key", "order", _PARTS),
    Ablation("park before the next selection", "parked", _PARKED),
    Ablation("leave out the whole parked key", "order", _PARKED),
    Ablation("checkpoint", "duplicate", _CRASH),
    Ablation("checkpoint lists what is being purged", "duplicate", _CRASH),
    Ablation("checkpoint lists what is locked", "duplicate", _LOCKED),
    Ablation("leave out what is locked", "duplicate", _LOCKED),
    Ablation("drain waits for locked rows", "duplicate", _LOCKED_DRAINED),
    Ablation("recovery lists what is locked", "duplicate", _LOCKED_CRASHES),
    Ablation("settling waits for locked rows", "duplicate", _LOCKED_CHANGED),
    Ablation("producer fence", "duplicate", _ZOMBIE),
    Ablation("init before checkpoint", "duplicate", _ZOMBIE),
    Ablation("read the last attempt", "duplicate", _TORN_ALONE),
    Ablation("look for each record", "loss", _TORN_ALONE),
    Ablation("heed the trace", "loss", _EQUAL),
    Ablation("assume no whole partitions", "loss", CUT),
    Ablation("heed later records", "duplicate", COMPACTED_LOG),
    Ablation("stable log", "duplicate", _UNSTABLE),
    Ablation("raise the fence before the checkpoint is read", "duplicate", _RENAMED),
    Ablation("fence before the checkpoint is written", "duplicate", _FORGOTTEN_ALIVE),
    Ablation("purge before emptying the checkpoint", "duplicate", _CRASHES),
    Ablation("list what is found before its purge", "loss", _CUT_EQUAL),
    Ablation("refuse a forgotten checkpoint", "duplicate", _FORGOTTEN),
    *(Ablation(ENDS, breaks, scope) for scope in (LATE_END, UNVERIFIED) for breaks in _LATE_ENDS_BREAK),
    Ablation("a contradiction is unknown", "duplicate", _TORN_KEYS),
    Ablation("database fence", "duplicate", _SWITCHED),
    Ablation("attempt in the fence", "parked", _PARKED_LATE),
    Ablation("settle former lanes", "duplicate", _CHANGED),
    Ablation("settle before the first selection", "duplicate", _CHANGED),
    Ablation("note before the first publish", "duplicate", _CHANGED),
    Ablation("settle before at-least-once", "duplicate", _SWITCHED),
    Ablation("refuse to settle by a forgotten checkpoint", "duplicate", _CHANGED_FORGOTTEN),
    Ablation("open the former sender", "duplicate", _NAMED),
    Ablation("heed the former sender's checkpoint", "duplicate", _NAMED),
    Ablation("read the checkpoint where it is noted", "duplicate", _MOVED_TWICE),
    Ablation("note another name or place", "duplicate", _MOVED_TWICE),
)
"""Each must be caught."""
GAPS = (Ablation("excuse stale copies", "duplicate", _SWITCHED),)
"""What the protocol does not prevent and the exploration excuses; here it is not excused."""


def ablate(ablation: Ablation) -> Found:
    """Explores the protocol without a rule, up to the shortest history that breaks the property named."""
    return explore(ExactlyOnce(ablation.scope, frozenset({ablation.rule})), ablation.breaks)


if {each.rule for each in (*ABLATIONS, *GAPS)} != set(get_args(Rule)):
    raise TypeError("every rule has its ablation")
