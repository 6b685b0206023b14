"""What of an outbox is paused, as one lane knows it, and since when each pause is in effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from outbox_api import Pause

from outbox_core.delivery.paused import Paused

LOOK_SECONDS = 1.0
"""The time between two looks at what is paused."""


class Machine(Protocol):
    """What leaves out what is paused."""

    paused: Paused

    def pause(self, now: float, paused: Paused) -> None:
        """Takes note of all that is paused from now on."""
        ...

    @property
    def settled(self) -> bool:
        """Whether nothing of that is in flight."""
        ...


class Pauses:
    """Keeps a lane's state machine informed.

    A pause is *in effect* once nothing of it is in flight, and nothing of it can be sent. Heartbeats say
    which are. A lane reads the pauses before its first mark or selection. So what a heartbeat has said once
    holds, whatever becomes of the lane, until the pause ends.

    Attributes:
        due: When to look next.
    """

    def __init__(self, machine: Machine, found: Sequence[Pause], now: float) -> None:
        self.due = now
        self._machine = machine
        self._has_ended = False
        self._known: Mapping[str, str] = {}  # topic → since when the pause is on
        self._in_effect: Mapping[str, str] = {}
        self.looked(now, found)

    def asked(self) -> None:
        """Takes note that a look is under way."""
        self.due = float("inf")

    def looked(self, now: float, found: Sequence[Pause]) -> None:
        """Takes what a look has found."""
        self.due = now + LOOK_SECONDS
        self._known = {each.topic: each.since.isoformat() for each in found}
        paused, before = Paused.of(self._known), self._machine.paused
        if paused != before:
            self._has_ended |= before.whole > paused.whole or not before.topics <= paused.topics
            self._machine.pause(now, paused)

    def failed(self, now: float) -> None:
        """Takes that a look has failed: what is known stays."""
        self.due = now + LOOK_SECONDS

    def take_ended(self) -> bool:
        """Returns whether a pause has ended since the last call."""
        ended, self._has_ended = self._has_ended, False
        return ended

    def has_changed(self) -> bool:
        """Returns whether heartbeats have something else to say than before."""
        if self._known == self._in_effect:
            return False
        settled, before = self._machine.settled, self._in_effect
        now = {topic: at for topic, at in self._known.items() if settled or before.get(topic) == at}
        if now == self._in_effect:
            return False
        self._in_effect = now
        return True

    def as_data(self) -> Mapping[str, object]:
        """Returns what heartbeats say: which pauses are in effect, by when they began; nothing for none."""
        return {"paused": dict(self._in_effect)} if self._in_effect else {}
