"""Whether a database has room for the connections of all its outboxes, should one process lead them."""

from collections.abc import Callable, Sequence
from functools import partial

from outbox_sdk.errors import OutboxError
from outbox_sdk.finding import Finding, Level

from outbox_core.config import Delivery, HarvestSettings
from outbox_core.config.outboxes import by_database

CURE = (
    "raise the limit, or lower sendConcurrency; each further process needs a connection for each outbox that "
    "elects by a lease, and those of the outboxes that it may come to lead"
)


def connection_checks(
    outboxes: Sequence[HarvestSettings], *, looked_at: bool
) -> dict[str, Callable[[], Sequence[Finding]]]:
    """Returns a check for each database.

    Args:
        outboxes: All that a process harvests.
        looked_at: Whether it serves HTTP, for which it looks at each outbox.
    """
    return {
        f"connections of {its[0].title}" + (f" and {len(its) - 1} more" if its[1:] else ""): partial(
            _check, its[0], needed(its, looked_at=looked_at)
        )
        for its in by_database(outboxes).values()
    }


def needed(outboxes: Sequence[HarvestSettings], *, looked_at: bool) -> int:
    """Returns how many connections a process has to a database while it leads all these outboxes of it."""
    lanes = sum(
        each.limits.send_concurrency * (1 if each.delivery is Delivery.EXACTLY_ONCE else 2)
        for each in outboxes
    )
    leases = sum(each.elector.driver == "lease" for each in outboxes)
    return lanes + leases + (len(outboxes) if looked_at else 0) + 1


def _check(outbox: HarvestSettings, most: int) -> Sequence[Finding]:
    try:
        free = outbox.dialect.create().free_connections()
    except OutboxError:  # the dialect's check reports it
        return []
    if free is None:
        return []
    seen = f"a process that leads has up to {most}, and the server has {free} free now"
    if most > free:
        return [Finding(Level.WARNING, "connections", seen, CURE)]
    return [Finding(Level.OK, "connections", seen)]
