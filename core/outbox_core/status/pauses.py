"""What of an outbox is paused, what waits for that, and whether it is in effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outbox_api.portable.view import PortableView
from outbox_api.seams.fence import LaneStatus
from outbox_api.seams.outbox_view import MAX_COUNTED
from outbox_api.seams.pausing import WHOLE, Pause

from outbox_core.text.printable import printable
from outbox_core.text.wording import coarse_duration, date_clock_and_zone


@dataclass(frozen=True, slots=True)
class PauseState:
    """A pause that is on."""

    pause: Pause
    open: tuple[int, ...]
    """The lanes, of those with heartbeats, that have not said yet that nothing of it is in flight there."""
    records: int  # how many of the first MAX_COUNTED rows wait for it
    exact: bool  # whether these are all

    @property
    def in_effect(self) -> bool:
        """Whether nothing of it is in flight, as far as lanes send heartbeats."""
        return not self.open

    @property
    def forgotten(self) -> float | None:
        """For how many seconds it has lasted without an end; ``None`` if it ends by itself."""
        return self.pause.lasted if self.pause.until is None else None

    def said(self) -> str:
        """Returns who has paused what, since when, until when, why, and what waits."""
        pause, more = self.pause, "" if self.exact else " or more"
        until = f" until {date_clock_and_zone(pause.until)}" if pause.until else ""
        why = f" ({printable(pause.reason)})" if pause.reason else ""
        effect = "" if self.in_effect else "; some of it may still be in flight"
        return (
            f"{printable(pause.operator)} has paused {printable(pause.subject)} for"
            f" {coarse_duration(pause.lasted)}{until}{why}: {self.records:,}{more} records wait{effect}"
        )


def in_effect(metrics: Mapping[str, object], pause: Pause) -> bool:
    """Returns whether a lane's heartbeat says that a pause is in effect."""
    said = metrics.get("paused")
    return isinstance(said, Mapping) and said.get(pause.topic) == pause.since.isoformat()


def pause_states(
    view: PortableView, pauses: Sequence[Pause], speaking: Sequence[LaneStatus]
) -> list[PauseState]:
    """Returns the state of each pause; reads nothing where there is none.

    Args:
        view: The outbox.
        pauses: Those that are on.
        speaking: The lanes with recent heartbeats. Where none has, nobody leads, and nothing is in flight.
    """
    if not pauses:
        return []
    waiting = view.waiting()
    exact = (total := sum(waiting.values())) < MAX_COUNTED
    return [
        PauseState(
            pause,
            tuple(lane.fence.lane for lane in speaking if not in_effect(lane.metrics, pause)),
            total if pause.topic == WHOLE else waiting.get(pause.topic, 0),
            exact,
        )
        for pause in pauses
    ]


def pauses_as_data(states: Sequence[PauseState]) -> list[dict[str, Any]]:
    """Returns pauses as JSON data: times in seconds, instants in ISO 8601."""
    return [
        {
            "topic": each.pause.topic or None,
            "operator": each.pause.operator,
            "reason": each.pause.reason,
            "since": each.pause.since.isoformat(),
            "until": each.pause.until and each.pause.until.isoformat(),
            "lasted_seconds": each.pause.lasted,
            "in_effect": each.in_effect,
            "records": each.records,
            "exact": each.exact,
        }
        for each in states
    ]
