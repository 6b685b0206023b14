"""What an operator does with the records of another cluster."""

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

from outbox_api.base.errors import ConfigError, DriverError, OutboxError
from outbox_api.seams.affinity import MAX_CLUSTER, Origin
from outbox_api.seams.outbox_table import OutboxTable

from outbox_core.operations.fence import lane_count, refuse_if_raised
from outbox_core.operations.journalled import Operator, journalled, operating
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings


class UnknownCluster(OutboxError):  # noqa: N818 - reads as what is wrong with the number
    """A cluster whose records cannot be taken over: the own one, or none that is known here."""


@dataclass(frozen=True, slots=True)
class TakeoverChanged:
    """A takeover was begun or ended."""

    verb: Verb  # which of the two
    cluster: int
    changed: bool  # whether that is news; False if it was on already, or was not on
    token: int | None  # the token that was raised for it; None if nobody has ever led
    unnoted: str = ""  # why the journal lacks the outcome; empty if it has it


def check_cluster(settings: HarvestSettings, verb: Verb, cluster: int) -> None:
    """Raises as :func:`change_takeover` where that would be refused; reads only."""
    origin = origin_of(settings)
    with closing(settings.dialect.create().watch()) as view:
        begins = verb is Verb.TAKE_OVER
        found = view.origins() if begins else view.takeovers()
        _refuse(cluster, origin, {each.cluster for each in found})


def origin_of(settings: HarvestSettings) -> Origin:
    """Returns how rows tell where they were written; raises ``ConfigError`` where they do not."""
    origin = settings.affinity.create().origin()
    if origin is None:
        raise ConfigError(
            f"outbox {settings.title} has one cluster only: with the affinity '{settings.affinity.driver}' "
            "its records do not tell where they were written, and all are taken at once"
        )
    return origin


def _refuse(cluster: int, origin: Origin, found: Collection[int]) -> None:
    """Makes sure that a cluster is another one, and known or among those found: orphans, or taken over."""
    if cluster == origin.own:
        raise UnknownCluster(f"this is cluster {cluster}: it takes its own records in any case")
    if cluster not in origin.known and (cluster not in found or not 1 <= cluster <= MAX_CLUSTER):
        others = ", ".join(str(each) for each in origin.known if each != origin.own)
        raise UnknownCluster(f"there is no cluster {cluster}; the others are {others or 'none'}")


@operating()
def change_takeover(
    settings: HarvestSettings, verb: Verb, cluster: int, operator: Operator, seen: int | None = None
) -> TakeoverChanged:
    """Has this cluster take the records of another one at once, or ends that. Idempotent.

    The operator's reason is stored beside the fence, too. Both verbs raise the fence: a request that names
    the token, as the operator has ``seen`` it, does nothing if it arrives again after the other verb.

    Raises:
        ConfigError: The outbox has one cluster only.
        UnknownCluster: It is no other cluster of which records could be here.
        OutboxError: Somebody has raised the token since; nothing was done.
    """
    check_cluster(settings, verb, cluster)
    with closing(settings.dialect.create().connect()) as table:
        refuse_if_raised(table.lane_statuses(), seen)
        with journalled(settings, verb, f"cluster {cluster}", operator) as outcome:
            if verb is Verb.TAKE_OVER:
                changed = table.begin_takeover(cluster, operator.reason)
                said = "began" if changed else "was on already"
            else:
                changed = table.end_takeover(cluster)
                said = "ended" if changed else "was not on"
            token = _raise_fence(table, settings, operator, said)
            outcome.text = said if token is None else f"{said}, token {token}"
    return TakeoverChanged(verb, cluster, changed, token, outcome.unnoted)


def _raise_fence(table: OutboxTable, settings: HarvestSettings, operator: Operator, said: str) -> int | None:
    """Fences the present leader, which does not know of the change; returns the token.

    It does so also where nothing has changed: an earlier call may have ended before it raised the fence.
    """
    try:
        held = table.lane_statuses()
        return table.bump(lane_count(held, settings), operator.holder) if held else None
    except DriverError as error:
        message = f"the takeover {said}, but the present leader does not know yet; do it again: {error}"
        raise type(error)(message, retryable=error.retryable) from error
