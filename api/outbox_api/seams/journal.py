"""The journal of an outbox: what operators have done to it, by whom, when and why."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from secrets import randbits
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEntries:
    """Which entries are wanted; all conditions hold together.

    Attributes:
        operator: What the operator's name contains; empty for any.
        verb: The verb; empty for any.
        since: Begun then or later.
        until: Begun before then.
        after: Those that come after this one in the order of a list, the newest first.
    """

    operator: str = ""
    verb: str = ""
    since: datetime | None = None
    until: datetime | None = None
    after: UUID | None = None


ALL_ENTRIES = ChosenEntries()


def new_entry_id() -> UUID:
    """Makes the id of an entry, of version 7: an id that this process makes later is greater.

    So the entries of one process have an order even where the database's clock has told the same time twice.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | randbits(62))
