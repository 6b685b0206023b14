"""States that must be reached: without them it would say nothing that no property is broken there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .ablations import COMPACTED_LOG, CUT, LATE_END, UNVERIFIED
from .checker import reachable
from .protocol import ExactlyOnce
from .scope import Rule, Scope
from .world import COMPACTED, ONCE, UNSENT, Lane, World


@dataclass(frozen=True)
class Probe:
    """A kind of states.

    Attributes:
        name: What they are.
        scope: Where they are.
        sees: Whether a state is one of them.
        off: The rules without which there are any.
    """

    name: str
    scope: Scope
    sees: Callable[[World], bool]
    off: frozenset[Rule] = frozenset()


def reached(probe: Probe) -> bool:
    """Returns whether there is such a state, in a history that breaks no property before."""
    return any(probe.sees(world) for world in reachable(ExactlyOnce(probe.scope, probe.off)))


def _lane(sees: Callable[[World, Lane], bool]) -> Callable[[World], bool]:
    """Returns whether a lane of some process is in a state."""
    return lambda world: any(sees(world, lane) for process in world.processes for lane in process.lanes)


def _copy_is_on_its_way(world: World) -> bool:
    return any(call.name == "end" for call in world.strays)


def _will_be_contradicted(world: World, lane: Lane) -> bool:
    transaction = world.channels[lane.channel].transaction
    return bool(lane.publishing and transaction and transaction.contradicted)


def _split_unseen(world: World, lane: Lane) -> bool:
    """Returns whether a lane publishes rows that are no longer in its transaction, and is not told."""
    transaction = world.channels[lane.channel].transaction
    return bool(
        lane.publishing
        and transaction
        and not transaction.prepared
        and not transaction.contradicted
        and transaction.rows != lane.publishing.rows
    )


def _hangs(world: World) -> bool:
    return any(channel.hanging for channel in world.channels)


def _finds_prefix(world: World, lane: Lane) -> bool:
    """Returns whether a recovery looks for rows of which the first is in the log, and a later one is not."""
    places = [world.log[row] for row in lane.unsure]
    return lane.phase == "find" and places[:1] == [ONCE] and UNSENT in places


def _finds_later(world: World, lane: Lane) -> bool:
    """Returns whether a recovery looks for a row that the log no longer has, and for a later one."""
    places = [world.log[row] for row in lane.unsure]
    return lane.phase == "find" and COMPACTED in places and ONCE in places


_NO_END: frozenset[Rule] = frozenset({"end a producer after an end in doubt"})

PROBES = (
    Probe("the first copy of an end is on its way", LATE_END, _copy_is_on_its_way),
    Probe("a lane goes on whose producer has ended", LATE_END, _lane(lambda _, lane: lane.spent)),
    Probe(
        "a late end cuts a transaction, which its client will be told of",
        LATE_END,
        _lane(_will_be_contradicted),
        _NO_END,
    ),
    Probe("a late end cuts a transaction, and nobody is told", LATE_END, _lane(_split_unseen), _NO_END),
    Probe("rows hang that nobody verified", UNVERIFIED, _hangs, _NO_END),
    Probe("a recovery finds the first rows of a key, and not all", CUT, _lane(_finds_prefix)),
    Probe("a recovery finds a later row of a key, and not the first", COMPACTED_LOG, _lane(_finds_later)),
)
