"""What operators have paused, as a lane's state machine leaves it out of marks and selections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from outbox_api import WHOLE


class Paused(NamedTuple):
    """The topics that are paused, and whether the whole outbox is."""

    topics: frozenset[str] = frozenset()
    whole: bool = False

    @classmethod
    def of(cls, names: Iterable[str]) -> Paused:
        """Makes it of the names of pauses, of which one may stand for the whole outbox."""
        found = frozenset(names)
        return cls(found - {WHOLE}, WHOLE in found)

    def __bool__(self) -> bool:
        return self.whole or bool(self.topics)

    def has(self, topic: str) -> bool:
        """Returns whether records of a topic wait."""
        return self.whole or topic in self.topics


NOTHING = Paused()
