"""Deliberate bugs of pauses: what waits is published, or waits for ever, or goes on out of order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_api import WHOLE, Pause
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.paused import Paused
from outbox_core.delivery.recovery import Entered, Opened, Recovery, Servers
from outbox_core.lanes.pauses import Pauses

from .mutant import Mutant, mutant, under
from .scenario import Mode
from .trail import TOPICS

# --- what a lane reads ---------------------------------------------------------------------------------


class Unread(Recovery):
    def enter(self, servers: Servers, lane: int) -> Entered:
        return super().enter(servers, lane)._replace(pauses=())

    def open(self, servers: Servers, lane: int) -> Opened:
        return super().open(servers, lane)._replace(pauses=())


class EndsIgnored(Pauses):
    _ever: dict[str, Pause]

    def looked(self, now: float, found: Sequence[Pause]) -> None:
        self._ever = {**getattr(self, "_ever", {}), **{each.topic: each for each in found}}
        super().looked(now, list(self._ever.values()))


class AllResumed(Pauses):
    _before: Sequence[Pause] = ()

    def looked(self, now: float, found: Sequence[Pause]) -> None:
        fewer, self._before = len(found) < len(self._before), found
        super().looked(now, [] if fewer else found)


# --- what its state machine makes of it ----------------------------------------------------------------


class UnreadInFlight(MarkPurgeReset):
    @property
    def settled(self) -> bool:
        return True


class Unreset(MarkPurgeReset):
    def _left_out(self, held: tuple[str, ...]) -> tuple[str, ...]:
        return tuple({*held, *self.paused.topics})

    def _may_mark(self) -> bool:
        back, self._taken_back = self._taken_back, {}
        self._retrying = bool(self._expired) and self._retrying
        may = super()._may_mark()
        self._taken_back = back
        return may

    def unhold_due(self) -> float:
        back, self._taken_back = self._taken_back, {}
        due = super().unhold_due()
        self._taken_back = back
        return due


class Unsettled(SelectPublishPurge):
    @property
    def settled(self) -> bool:
        return True


class Selected(SelectPublishPurge):
    def pause(self, now: float, paused: Paused) -> None:
        selected, self._selected = self._selected, None
        super().pause(now, paused)
        self._selected = selected


_LEAST, _ONCE = Mode.AT_LEAST_ONCE, Mode.EXACTLY_ONCE
_FIXED: Any = {"pauses": (WHOLE, *TOPICS), "topics": 2}


def _mutant(
    name: str, says: str, invariants: str, mode: Mode, faults: str = "lane restarts", **parts: Any
) -> Mutant:
    return under(faults, mutant(name, says, invariants, 40, mode, **parts), **_FIXED)


def _watches(kind: type[Pauses]) -> dict[str, Any]:
    names = ("record_lane", "batch_lane")
    return {"patches": {f"outbox_core.lanes.{name}.Pauses": kind for name in names}}


PAUSE_MUTANTS: Sequence[Mutant] = (
    _mutant("pauses-unread", "A lane does not read what is paused before its first mark.", "paused", _LEAST,
            recovery=Unread),
    _mutant("pauses-unread-in-batches", "The same in exactly-once delivery.", "paused", _ONCE,
            recovery=Unread),
    _mutant("ends-ignored", "A lane goes on with nothing that was paused once.", "I9", _LEAST,
            **_watches(EndsIgnored)),
    _mutant("all-resumed", "What ends one pause ends all.", "paused", _LEAST, **_watches(AllResumed)),
    _mutant("in-flight-unread", "A pause is said to be in effect while records are in flight.", "paused",
            _LEAST, "late network", machine=UnreadInFlight),
    _mutant("unreset", "A topic goes on while rows of it are marked that were taken back.", "I2 I9", _LEAST,
            "late network", machine=Unreset),
    _mutant("publishing-unread", "A pause is said to be in effect while a transaction publishes.", "paused",
            _ONCE, "slow commits", batch_machine=Unsettled),
    _mutant("selected-published", "What was selected before the pause is published.", "paused", _ONCE,
            "slow commits", batch_machine=Selected),
)  # fmt: skip
