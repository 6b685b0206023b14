"""The fence: one row for each lane, which decides who may change the rows of an outbox."""

# ruff: noqa: S608 - SQL for an operator to run

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox_api.base.errors import DriverError, LeadershipLost

IDENTITY_DIGITS = 12
"""Length of an identity: enough to be unique at one broker."""

_LARGEST_STEP = 1 << 24
"""Small enough for 2^29 leaders before a token exceeds 2^53, beyond which readers of JSON may round it."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The right of one process to work on one lane. Every mark, purge and reset compares it.

    Attributes:
        lane: The lane's number, from 0.
        lanes: How many lanes share the outbox; a record belongs to lane ``hash(key) mod lanes``.
        token: Every new leader raises it by a random step; a process with another token can change nothing.
        epoch: Raised whenever the lane starts anew under one leader, so that a frozen copy of the lane can
            change nothing either.
        identity: Random letters and digits that distinguish the lane from those of any other outbox, in
            whatever database. Created with the lane's row and never changed.
    """

    lane: int
    lanes: int
    token: int
    epoch: int
    identity: str = ""

    def lost(self) -> LeadershipLost:
        """Returns the error for a call whose fence is no longer in force."""
        holder = f"token {self.token}, epoch {self.epoch}"
        return LeadershipLost(f"lane {self.lane} of {self.lanes} is no longer held by {holder}")


def token_step() -> int:
    """Draws by how much a new leader's token exceeds the highest so far: 1 to 2^24.

    It is random, so that two databases that have parted (one is a restored backup, or a replica that was
    promoted) give different tokens to their next leaders, but for a chance of 6e-8.
    """
    return 1 + secrets.randbelow(_LARGEST_STEP)


def lost_token(lane: int, lanes: int, token: int) -> LeadershipLost:
    """Returns the error for a process that starts a lane under a token that is no longer in force."""
    return LeadershipLost(f"lane {lane} of {lanes} is no longer held by token {token}: another process leads")


def unexpected_token(expected: int | None) -> LeadershipLost:
    """Returns the error for a caller of ``bump`` who expects a token that is no longer in force."""
    return LeadershipLost(f"token {expected} is no longer in force: another process leads")


def perhaps_renamed(name: str, former: Collection[str], tables: Sequence[object]) -> DriverError:
    """Returns the error for an outbox that may be known by another name, by which much is noted of it.

    Args:
        name: The outbox's name.
        former: The names of which there is no table, and of which parked keys, or lanes that publish in
            transactions, are noted.
        tables: The fence, the notes, the history, and the dead letters.
    """
    old, new = (each.replace("'", "''") for each in (min(former), name))
    of_old, of_new = f"WHERE name = '{old}'", f"WHERE name = '{new}'"
    forgets = [f"DELETE FROM {table} {of_new}" for table in tables[:3]]
    moves = [f"UPDATE {table} SET name = '{new}' {of_old}" for table in tables]
    drops = [f"DELETE FROM {table} {of_old}" for table in tables]
    return DriverError(
        f"the fence does not know the outbox {name}, and knows {' and '.join(sorted(former))}, of which this "
        "user sees no table: what it notes there, of parked keys or of records that are in the log, may be "
        f"of this one. If it was renamed, end its harvesters and run: {'; '.join([*forgets, *moves])}. "
        f"If {old} was dropped, run: {'; '.join(drops)}",
        retryable=False,
    )


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """What the fence stores about one lane, for operators.

    Attributes:
        fence: The lane's current fence, without its identity.
        holder: The name of the process that holds it.
        since: When that leader raised the token (database clock).
        heartbeat_at: When the lane last wrote its metrics; ``None`` before the first time.
        age: Seconds since ``heartbeat_at`` by the database's clock; ``None`` before the first time.
        metrics: The lane's metrics as they were written last.
    """

    fence: Fence
    holder: str
    since: datetime
    heartbeat_at: datetime | None
    age: float | None
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TransactionalLane:
    """What the fence stores about a lane that publishes in Kafka transactions.

    Attributes:
        lanes: How many lanes there were.
        sender: The name that its transactional sender was opened under.
        location: Where that sender keeps the lane's checkpoint, see ``TransactionalSender.location``.
    """

    lanes: int
    sender: str
    location: str
