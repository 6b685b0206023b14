"""Replays: kept records that are stashed again, and how far one is.

A replay has a name, and one entry in the journal, whose outcome is its state until it ends. So what it has
done is committed with the rows that it has stashed: whoever goes on with it leaves none out, and stashes none
twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Self
from uuid import UUID, uuid5

REPLAY_HEADER = "outbox-replay"
"""The header of a replayed record that has the replay's name."""

_NAMESPACE = UUID("5e1f3ab0-63c5-4f0b-9a51-7d1d7be1f0a4")


def replay_entry(name: str) -> UUID:
    """Returns the id of a replay's entry in the journal, of which an outbox has one for each name."""
    return uuid5(_NAMESPACE, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayState:
    """How far a replay is.

    Attributes:
        choice: Identifies what was chosen, as the operator wrote it.
        chosen: How many records were chosen when it began.
        through: The greatest position of them.
        position: The position of the last record that was stashed.
        done: How many records were stashed.
        since: The time that the operator's *since* stood for when it began; ``None`` for none.
        until: Likewise.
    """

    choice: str
    chosen: int
    through: int
    position: int = 0
    done: int = 0
    since: datetime | None = None
    until: datetime | None = None

    @property
    def progress(self) -> str:
        """How far it is, in words."""
        return f"{self.done:,} of {self.chosen:,} records stashed"

    @property
    def result(self) -> str:
        """What came of it, in words, once all is stashed."""
        gone = self.chosen - self.done
        return self.progress + (f"; {gone:,} were deleted from the kept records meanwhile" if gone else "")

    def as_json(self) -> str:
        """Returns it as a text of some hundred bytes."""
        times = (None if each is None else each.isoformat() for each in (self.since, self.until))
        return json.dumps([self.choice, self.chosen, self.through, self.position, self.done, *times])

    @classmethod
    def read(cls, text: str) -> Self:
        """Reads what :meth:`as_json` has written.

        Raises:
            ValueError: It is something else.
        """
        *numbers, since, until = json.loads(text)
        times = (None if each is None else datetime.fromisoformat(each) for each in (since, until))
        names = (field.name for field in fields(cls))
        return cls(**dict(zip(names, (*numbers, *times), strict=True)))


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay that has begun.

    Attributes:
        name: Its name.
        begun: When (database clock), with a time zone.
        subject: What was chosen, for people.
        state: How far it is; ``None`` for one that has ended, but for whoever has ended it.
        outcome: What came of it, for people; empty until it has ended.
        ended: When it ended; ``None`` if it has not.
    """

    name: str
    begun: datetime
    subject: str
    state: ReplayState | None
    outcome: str = ""
    ended: datetime | None = None
