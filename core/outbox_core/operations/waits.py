"""What waits in an outbox, and why: topics and keys among its first rows, and the rows of one key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outbox_api.seams.outbox_view import MAX_COUNTED, WaitingGroup, WaitingKey
from outbox_api.seams.parking import DeadLetterStatus, listed_key
from outbox_api.seams.pausing import WHOLE

from outbox_core.operations.dead_letters import letters
from outbox_core.operations.reason import check_text
from outbox_core.settings import HarvestSettings
from outbox_core.settings.logs import KeyNames
from outbox_core.status.recent import Recent
from outbox_core.status.snapshot import present_lanes

MOST_GROUPS = 500
"""Topics, and keys, that are told."""
MOST_ROWS = 100
"""Rows of a key that are told."""


class WaitingState(StrEnum):
    """Why rows wait; the first that is true."""

    PARKED = "parked"  # the key is parked, or all keys of the topic are
    PAUSED = "paused"  # the topic, or the whole outbox, is paused
    MARKED = "marked"  # a lane has the first of them, or had it
    FREE = "free"  # a lane will take them in their turn


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows of one topic or key."""

    group: WaitingGroup
    share: float  # of the rows that were looked at
    state: WaitingState
    parked_keys: int = 0  # of a topic: how many of its keys are parked
    published: float | None = None
    """Of a topic: records a second in the last minute, as lanes' heartbeats say; ``None`` if they do not."""
    failed: float | None = None  # likewise those whose delivery failed

    def as_data(self, names: KeyNames) -> dict[str, Any]:
        """Returns it as JSON data."""
        group = self.group
        if group.key is None:
            more: dict[str, Any] = {
                "parked_keys": self.parked_keys,
                "published_per_second": self.published,
                "failed_per_second": self.failed,
            }
        else:
            more = {"key": group.key, "key_in_logs": names.of_listed(group.key)}
        return {
            "topic": group.topic,
            **more,
            "first_id": group.first,
            "rows": group.rows,
            "share": round(self.share, 4),
            "marked": group.marked,
            "oldest_seconds": group.oldest,
            "state": str(self.state),
        }


@dataclass(frozen=True, slots=True)
class WhatWaits:
    """What the first rows of an outbox are; topics and keys with the most rows first."""

    rows: int  # how many were looked at: MAX_COUNTED at most
    exact: bool  # whether these are all
    topics: Sequence[Waiting]
    keys: Sequence[Waiting]

    def of_topic(self, topic: str | None) -> WhatWaits:
        """Returns what of it is of a topic; all for ``None``."""
        if topic is None:
            return self
        chosen = [
            [each for each in found if each.group.topic == listed_key(topic)]
            for found in (self.topics, self.keys)
        ]
        return WhatWaits(self.rows, self.exact, *chosen)

    def as_data(self, names: KeyNames) -> dict[str, Any]:
        """Returns it as JSON data."""
        return {
            "rows": self.rows,
            "exact": self.exact,
            "topics": [each.as_data(names) for each in self.topics],
            "keys": [each.as_data(names) for each in self.keys],
        }


def what_waits(settings: HarvestSettings) -> WhatWaits:
    """Returns what the first ``MAX_COUNTED`` rows are, and why they wait; reads the dead letters, too."""
    with closing(settings.dialect.create().watch()) as view:
        topics, keys = view.waiting_groups(MOST_GROUPS)
        paused = {each.topic for each in view.pauses()}
        recent = Recent.of(lane.metrics for lane in present_lanes(view.lane_statuses()))
    parked = letters(settings, DeadLetterStatus.PARKED)
    parked_keys = {each.record.key for each in parked}
    by_topic = Counter(each.record.topic for each in parked)

    rates = {each.topic: (each.published_per_second, each.failed_per_second) for each in recent.topics}
    rows = sum(each.rows for each in topics)
    exact = rows < MAX_COUNTED and len(topics) < MOST_GROUPS
    parked_rows = Counter[str]()
    for each in keys:
        parked_rows[each.topic] += each.rows if each.key in parked_keys else 0

    def told(group: WaitingGroup) -> Waiting:
        alone = parked_rows[group.topic] >= group.rows if group.key is None else group.key in parked_keys
        if alone:
            state = WaitingState.PARKED
        elif {group.topic, WHOLE} & paused:
            state = WaitingState.PAUSED
        else:
            state = WaitingState.MARKED if group.marked else WaitingState.FREE
        share = group.rows / rows
        if group.key is not None:
            return Waiting(group, share, state)
        return Waiting(group, share, state, by_topic[group.topic], *rates.get(group.topic, (None, None)))

    return WhatWaits(rows, exact, [told(each) for each in topics], [told(each) for each in keys])


def rows_of_key(settings: HarvestSettings, key: str | None = None, of: int = 0) -> WaitingKey:
    """Returns the first rows of a key, and how many there are; may read the whole table.

    Args:
        settings: The outbox.
        key: The key, whole; ``None`` for that of the row ``of``.
        of: The id of a row.
    """
    check_text(key or "")
    with closing(settings.dialect.create().watch()) as view:
        return view.waiting_key(MOST_ROWS, key, of)


def key_as_data(found: WaitingKey, names: KeyNames) -> dict[str, Any]:
    """Returns the rows of a key as JSON data."""
    return {
        "key": found.key,
        "key_in_logs": "" if found.key is None else names.of(found.key),
        "rows": found.rows,
        "first": [
            {
                "id": each.id,
                "topic": each.topic,
                "age_seconds": each.age,
                "size": each.size,
                "marked": each.marked,
            }
            for each in found.first
        ],
    }
