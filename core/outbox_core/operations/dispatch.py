"""Does whatever verb an operator has asked for."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from outbox_api.parking import DeadLetter

from outbox_core.config import HarvestSettings
from outbox_core.operations.dead_letters import Changed, redrive, retry, reveal, skip
from outbox_core.operations.fence import Forgotten, Raised, forget, raise_fence
from outbox_core.operations.journalled import Operator
from outbox_core.operations.takeovers import TakeoverChanged, begin_takeover, end_takeover
from outbox_core.operations.verbs import Verb


class Arguments(NamedTuple):
    """What a verb is done to; which of these counts is told by its :class:`Target`.

    Attributes:
        ids: The ids of dead letters.
        cluster: A cluster.
        fence_token: The fence's token as the operator has seen it, for a leader or a cluster; ``None`` for
            whatever it is.
    """

    ids: Sequence[int] = ()
    cluster: int = 0
    fence_token: int | None = None


Done = Changed | Raised | Forgotten | TakeoverChanged | list[DeadLetter]


def perform(verb: Verb, settings: HarvestSettings, to: Arguments, operator: Operator) -> Done:
    """Does it; raises as the function of the verb does."""
    do: dict[Verb, Callable[[], Done]] = {
        Verb.RETRY: lambda: retry(settings, to.ids, operator),
        Verb.SKIP: lambda: skip(settings, to.ids, operator),
        Verb.REDRIVE: lambda: redrive(settings, to.ids, operator),
        Verb.REVEAL: lambda: reveal(settings, to.ids, operator),
        Verb.RAISE_FENCE: lambda: raise_fence(settings, operator, to.fence_token),
        Verb.FORGET: lambda: forget(settings, operator),
        Verb.TAKE_OVER: lambda: begin_takeover(settings, to.cluster, operator, to.fence_token),
        Verb.END_TAKEOVER: lambda: end_takeover(settings, to.cluster, operator, to.fence_token),
    }
    return do[verb]()
