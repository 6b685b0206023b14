"""Does whatever verb an operator has asked for."""

from collections.abc import Sequence
from typing import NamedTuple

from outbox_api.seams.parking import DeadLetter

from outbox_core.operations.dead_letters import Changed, change, change_chosen, reveal
from outbox_core.operations.erasing import Receipt, erase
from outbox_core.operations.fence import Forgotten, Raised, forget, raise_fence
from outbox_core.operations.journalled import Operator
from outbox_core.operations.letter_filter import LetterFilter
from outbox_core.operations.pausing import PauseChanged, change_pause
from outbox_core.operations.replaying import give_up
from outbox_core.operations.replays import GivenUp
from outbox_core.operations.takeovers import TakeoverChanged, change_takeover
from outbox_core.operations.verbs import Target, Verb
from outbox_core.settings import HarvestSettings


class Arguments(NamedTuple):
    """What a verb is done to; which of these counts is told by its :class:`Target`."""

    ids: Sequence[int] = ()  # the ids of dead letters
    cluster: int = 0
    fence_token: int | None = None
    """The fence's token as the operator has seen it, for a leader or a cluster; ``None`` for whatever it is.
    """
    key: str = ""  # a key, whole
    tombstone: str = ""  # the topic for a tombstone of the key; empty for none
    name: str = ""  # the name of a replay
    topic: str = ""  # a topic, or the whole outbox
    seconds: float | None = None  # how long a pause lasts; None for no end
    where: LetterFilter | None = None  # which dead letters, instead of ids
    expected: int = 0  # how many these were


Done = GivenUp | Changed | Raised | Forgotten | TakeoverChanged | Receipt | PauseChanged | list[DeadLetter]


def perform(verb: Verb, settings: HarvestSettings, to: Arguments, operator: Operator) -> Done:
    """Does it; raises as the function does that is called here."""
    done: Done
    match verb.about.target:
        case Target.LETTERS:
            done = (
                change(settings, verb, to.ids, operator)
                if to.where is None
                else change_chosen(settings, verb, to.where, to.expected, operator)
            )
        case Target.CONTENTS:
            done = reveal(settings, to.ids, operator)
        case Target.LEADER:
            done = raise_fence(settings, operator, to.fence_token)
        case Target.LANES:
            done = forget(settings, operator)
        case Target.CLUSTER:
            done = change_takeover(settings, verb, to.cluster, operator, to.fence_token)
        case Target.KEPT | Target.PARTITIONS:
            raise ValueError(f"{verb} is done step by step: see its own module of this package")
        case Target.REPLAY:
            done = give_up(settings, to.name, operator)
        case Target.KEY:
            done = erase(settings, to.key, operator, to.tombstone)
        case Target.TOPIC:
            done = change_pause(settings, verb, to.topic, operator, to.seconds)
    return done
