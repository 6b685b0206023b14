"""What the page shows of kept records and of their replays, as plain values: without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from outbox_api.seams.kept import Kept, KeptRecord
from outbox_api.seams.replay import Replay
from outbox_core.settings.logs import KeyNames
from outbox_core.text.printable import printable

from outbox_console.view.dead_letters import short, shown_key


@dataclass(frozen=True, slots=True)
class Day:
    """How much is kept of a day."""

    day: str
    first: str
    last: str
    records: str
    keys: str
    size: str


def day(day: date, kept: Kept) -> Day:
    """Returns what is shown of a day."""
    first, last = (f"{each:%H:%M:%S}" if each else "" for each in (kept.since, kept.until))
    return Day(
        day.isoformat(), first, last, f"{kept.records:,}", f"{kept.keys:,}", f"{kept.bytes / 2**20:,.1f}"
    )


@dataclass(frozen=True, slots=True)
class Record:
    """What is shown of a kept record."""

    position: int
    key: str
    in_logs: str  # what log lines call the key; empty if that is the key itself, or is not known
    topic: str
    id: int
    delivered: datetime
    token: int
    superseded: bool
    has_value: bool
    has_headers: bool
    partition: int | None
    timestamp_ms: int | None


def record(kept: KeptRecord, names: KeyNames) -> Record:
    """Returns what is shown of a kept record."""
    found = kept.record
    return Record(
        position=kept.position,
        key=shown_key(found.key),
        in_logs=names.of_listed(found.key) if names.hashed else "",
        topic=short(found.topic),
        id=found.id,
        delivered=kept.delivered_at,
        token=kept.token,
        superseded=kept.superseded,
        has_value=kept.has_value,
        has_headers=kept.has_headers,
        partition=found.partition,
        timestamp_ms=found.timestamp_ms,
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a replay."""

    name: str
    begun: datetime
    chosen: str  # which records were chosen
    progress: str  # how far it is, or what came of it
    state: str  # "runs here", "under way" or "ended"


def replay(found: Replay, *, here: bool) -> Shown:
    """Returns what is shown of a replay, which may run in this process."""
    state = "ended" if found.ended else "runs here" if here else "under way"
    chosen = printable(found.subject.removeprefix(f"{found.name}: "))
    progress = found.state.progress if found.state else printable(found.outcome)
    return Shown(found.name, found.begun, short(chosen), progress, state)
