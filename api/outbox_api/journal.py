"""The journal of an outbox: what operators have done to it, by whom, when and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from secrets import randbits
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Action:
    """What an operator is about to do.

    Attributes:
        operator: Who: a user at a machine and of the database, or the name that an authenticating proxy or a
            token stands for.
        via: By which way: ``cli`` or ``http``.
        verb: What, such as ``retry``; at most 40 characters.
        subject: To what, such as the keys, for people; empty where the verb concerns the whole outbox.
        reason: Why, as the operator says; may be empty.
    """

    operator: str
    via: str
    verb: str
    subject: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One action as it was noted.

    Attributes:
        id: Identifies the entry.
        at: When it was begun (database clock), with a time zone.
        action: What was to be done.
        outcome: What came of it, for people; ``None`` if that was never noted: the process ended before, so
            that it may have been done or not.
    """

    id: UUID
    at: datetime
    action: Action
    outcome: str | None


class Journal(Protocol):
    """A connection to the journal of one outbox; used by one thread.

    An action is noted before it is done, in a transaction of its own, and its outcome afterwards. So nothing
    is done that is not noted, and what was interrupted can be told. Texts that are too long for the table are
    cut; characters that it cannot hold are replaced.

    Every method raises ``DriverError`` if the database refuses or cannot be reached.
    """

    def user(self) -> str:
        """Returns the user as whom this process has signed in; empty if the database knows no users."""
        ...

    def begin(self, action: Action) -> UUID:
        """Notes what is about to be done, durably; returns the id of the entry."""
        ...

    def end(self, entry: UUID, outcome: str) -> None:
        """Notes what came of it. Does nothing if there is no such entry, or it has an outcome; idempotent."""
        ...

    def entries(self, limit: int = 100) -> Sequence[Entry]:
        """Returns the last entries of this outbox, the newest first, ``limit`` at most."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...


def new_entry_id() -> UUID:
    """Makes the id of an entry, of version 7: an id that this process makes later is greater.

    So the entries of one process have an order even where the database's clock has told the same time twice.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | randbits(62))
