"""What is shown of processes, latencies and topics, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from outbox_core.status.processes import Process, ProcessRole
from outbox_core.status.recent import OTHER_TOPICS, TopicWork
from outbox_core.status.snapshot import Snapshot
from outbox_core.text.printable import printable
from outbox_core.text.wording import short_duration

_WHOLE = 10.0
"""From this rate on a figure has no fraction."""
_NOTED = 10.0
"""Seconds by which the age of a process's note advances on a page."""


Word = Callable[[float], str]
"""Words seconds."""

_ROLES = {
    ProcessRole.STARTING: "is starting",
    ProcessRole.STANDS_BY: "stands by",
    ProcessRole.LEADS: "leads",
}


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A row of the table of processes; texts, but for the time and whether it is silent."""

    name: str
    role: str
    version: str
    engine: str
    since: datetime
    heard: str
    silent: bool


@dataclass(frozen=True, slots=True)
class Latency:
    """From the creation of a record until the broker's acknowledgement, as texts."""

    p50: str
    p99: str


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A row of the table of topics; texts, but for what is marked."""

    topic: str
    rate: str
    share: str  # of the records that were published
    failed: str  # records in the last minute
    fails: bool
    paused: bool


def process_row(process: Process, word: Word, *, steady: bool) -> ProcessRow:
    """Returns the row of a process; ``steady``: its age advances in steps."""
    coarse = f"in the last {word(max(1, ceil(process.age / _NOTED)) * _NOTED)}"
    return ProcessRow(
        name=printable(process.name),
        role=_role(process),
        version=printable(process.version),
        engine=printable(process.engine),
        since=process.since,
        heard=coarse if steady and not process.silent else f"{word(process.age)} ago",
        silent=process.silent,
    )


def _role(process: Process) -> str:
    if process.aside:
        return f"stands aside: {printable(process.aside)}"
    return "-" if process.silent and process.role is ProcessRole.STANDS_BY else _ROLES[process.role]


def latency_of(snapshot: Snapshot) -> Latency | None:
    """Returns the latency of the last minute; ``None`` if nothing was delivered."""
    p50, p99 = (snapshot.recent.quantile(share) for share in (0.5, 0.99))
    return None if p50 is None or p99 is None else Latency(short_duration(p50), short_duration(p99))


def topic_rows(snapshot: Snapshot) -> tuple[TopicRow, ...]:
    """Returns the rows of the topics of the last minute, and of those that are paused."""
    paused = {state.pause.topic for state in snapshot.pauses}
    found = {each.topic: each for each in snapshot.recent.topics}
    found |= {topic: TopicWork(topic) for topic in sorted(paused - {"", *found})}
    total = sum(each.published_per_second for each in found.values())
    return tuple(
        TopicRow(
            topic="others" if each.topic == OTHER_TOPICS else printable(each.topic),
            rate=f"{each.published_per_second:,.{0 if each.published_per_second >= _WHOLE else 1}f}",
            share=f"{each.published_per_second / total:.0%}" if total else "",
            failed=f"{each.failed:,}",
            fails=each.failed > 0,
            paused=each.topic in paused or "" in paused,
        )
        for each in found.values()
    )
