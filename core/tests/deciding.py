"""Asks a state machine for all that is due, in the order in which a lane without threads would."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from outbox_api import Failure, MarkedRecord
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.exactly_once import SelectPublishPurge


@dataclass(frozen=True)
class Send:
    """Records are to be sent, alone and in runs."""

    records: list[MarkedRecord]
    first: list[MarkedRecord] = field(default_factory=list)
    others: list[MarkedRecord] = field(default_factory=list)


@dataclass(frozen=True)
class Refresh:
    """The epoch in the fence is to be raised; the machine takes it for raised."""

    leader_id: UUID


@dataclass(frozen=True)
class ReportFailures:
    """Records have failed, and topics are held as a whole."""

    failures: list[Failure]
    held_topics: list[str] = field(default_factory=list)


def decide(machine: MarkPurgeReset | SelectPublishPurge, now: float, leading: bool = True) -> list[Any]:
    """Returns all that is due."""
    if isinstance(machine, SelectPublishPurge):
        machine.look(leading)
        publish = machine.next_to_publish(now) if machine.publish_due() <= now else None
        failures, topics = machine.take_failed()
        asked = machine.next_for_database(now) if machine.database_due() <= now else None
        reported = ReportFailures(failures, topics) if failures else None
        return [each for each in (publish, reported, asked) if each]
    return _decide(machine, now, leading)


def _decide(machine: MarkPurgeReset, now: float, leading: bool) -> list[Any]:
    machine.look(now, leading)
    decided: list[Any] = []
    if machine.may_refresh:
        decided.append(Refresh(machine.next_leader_id(now)))
        machine.entered()
    if machine.may_send and any(sent := machine.next_to_send()):
        decided.append(Send(*sent))
    if machine.unhold_due() <= now:
        decided.append(machine.next_unhold(now))
    elif machine.purge_due() <= now:
        decided.append(machine.next_purge(now))
    if machine.mark_due() <= now:
        decided.append(machine.next_mark(now))
    failures, topics = machine.take_failed(now)
    if failures:
        decided.append(ReportFailures(failures, topics))
    return decided


def wake_at(machine: MarkPurgeReset | SelectPublishPurge) -> float:
    """Returns when something is due next, if nothing happens before."""
    if isinstance(machine, SelectPublishPurge):
        return min(machine.publish_due(), machine.database_due())
    if machine.may_send:
        return 0.0
    return min(machine.unhold_due(), machine.purge_due(), machine.mark_due())
