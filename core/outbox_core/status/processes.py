"""The processes that harvest an outbox, by what each has noted of itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from outbox_api.base.errors import DriverError
from outbox_api.portable.outboxes import MEMBER_LENGTH, MemberRow
from outbox_api.portable.table_idiom import bounded
from outbox_api.portable.view import PortableView
from outbox_api.seams.fence import LaneStatus

SILENT_NOTES = 3
"""A process is silent that has missed so many notes."""
SHOWN_SECONDS = 300.0
"""For how long a silent process is shown."""


class ProcessRole(StrEnum):
    """What a process does for an outbox; programs may rely on these names."""

    STARTING = "starting"
    """It takes no part in the election: its engine starts, or it cannot reach what it needs."""
    STANDS_BY = "stands-by"
    LEADS = "leads"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that harvests an outbox."""

    name: str
    role: ProcessRole
    version: str  # of outbox-harvester
    engine: str
    since: datetime  # when it started, by its own clock
    age: float  # seconds since it noted itself last, by the database's clock
    silent: bool  # whether it has not noted itself for too long
    aside: str = ""  # why it takes no part in the election for a while; empty if it does, or is starting


@dataclass(frozen=True, slots=True)
class Processes:
    """What is known of the processes that harvest an outbox."""

    known: Sequence[Process] = field(default=())  # who leads first, then by name
    error: str = ""  # why nothing is known of them, and the cure; free of secrets


def tag(outbox: str) -> str:
    """Returns how a note names an outbox, of which a process may have hundreds."""
    return blake2b(outbox.encode(), digest_size=4).hexdigest()


def processes(view: PortableView, lanes: Sequence[LaneStatus], longest_silence: float) -> Processes:
    """Returns the processes that harvest an outbox.

    Args:
        view: The outbox.
        lanes: Those of the present leader.
        longest_silence: Seconds without a heartbeat after which nobody leads.
    """
    try:
        rows = view.members()
    except DriverError as error:
        if error.retryable:
            raise
        return Processes(
            error=f"{error}; 'outbox init' creates the table, the dialect's README has the grants"
        )
    leads = {
        str(lane.metrics.get("member"))
        for lane in lanes[:1]
        if lane.age is not None
        and not lane.metrics.get("left")
        and min(each.age for each in lanes if each.age is not None) <= longest_silence
    }
    found = [made for row in rows if (made := _process(row, tag(view.name), leads)) is not None]
    order = list(ProcessRole)
    return Processes(sorted(found, key=lambda each: (-order.index(each.role), each.name, each.since)))


def _process(row: MemberRow, outbox: str, leads: set[str]) -> Process | None:
    if row.age > SHOWN_SECONDS:
        return None
    with suppress(ValueError, TypeError, KeyError):  # of another version
        about = json.loads(row.about)
        if outbox not in about["outboxes"]:
            return None
        role = ProcessRole.STANDS_BY if about["ready"] else ProcessRole.STARTING
        if row.name in {bounded(each, MEMBER_LENGTH) for each in leads}:
            role = ProcessRole.LEADS
        return Process(
            name=str(about["process"]),
            role=role,
            version=str(about["version"]),
            engine=str(about["engine"]),
            since=datetime.fromisoformat(about["since"]),
            age=max(0.0, row.age),
            aside=str(about.get("aside", "")),
            silent=row.age > SILENT_NOTES * float(about["every"]),
        )
    return None


def processes_as_data(processes: Processes | None) -> list[dict[str, Any]] | None:
    """Returns them as JSON data; ``None`` if nothing is known."""
    if processes is None or processes.error:
        return None
    return [
        {
            "name": each.name,
            "role": each.role,
            "version": each.version,
            "engine": each.engine,
            "since": each.since.isoformat(),
            "note_age_seconds": each.age,
            "silent": each.silent,
            "aside": each.aside or None,
        }
        for each in processes.known
    ]
