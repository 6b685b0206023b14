"""What is said of dead rows and of the snapshot that keeps them, and when it is old."""

from outbox_api.seams.outbox_view import OldSnapshot, Upkeep

from outbox_core.text.wording import duration

MANY = 10
"""Times the permitted number of dead rows: so many are too many even if no snapshot keeps them.

Between two vacuums, a minute apart, a busy outbox makes hundreds of thousands.
"""

MANY_TRANSACTIONS = 50_000
"""A snapshot whose age in seconds is not known is old after so many transactions.

Standbys that report their oldest query (hot_standby_feedback) are always a few seconds behind.
"""


def is_old(snapshot: OldSnapshot, limit: float) -> bool:
    """Returns whether a snapshot has been kept for more than ``limit`` seconds, as far as that is known."""
    if snapshot.seconds is not None:
        return snapshot.seconds > limit
    return (snapshot.transactions or 0) > MANY_TRANSACTIONS


def dead_rows(upkeep: Upkeep) -> str:
    """Returns how many dead rows there are, with their unit."""
    return f"about {upkeep.dead or 0:,} {upkeep.unit}"


def kept(snapshot: OldSnapshot) -> str:
    """Returns who has kept a snapshot, and for how long."""
    if snapshot.seconds is not None:
        age = f"for {duration(snapshot.seconds)}"
    elif snapshot.transactions is not None:
        age = f"for {snapshot.transactions:,} transactions"
    else:
        age = "for an unknown time"
    return f"{snapshot.owner} has kept an old snapshot {age}"


def as_data(upkeep: Upkeep) -> dict[str, object]:
    """Returns the state as JSON data: times in seconds."""
    snapshot = upkeep.snapshot
    return {
        "dead": upkeep.dead,
        "unit": upkeep.unit,
        "vacuumed_seconds_ago": upkeep.vacuumed,
        "snapshot": snapshot
        and {"owner": snapshot.owner, "seconds": snapshot.seconds, "transactions": snapshot.transactions},
        "sees_everybody": upkeep.visible,
    }
