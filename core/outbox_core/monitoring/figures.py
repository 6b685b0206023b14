"""What can be seen of a harvest from within its process: the present figures of all metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outbox_core.events.measurements import Distribution, LaneWork, Measurements
from outbox_core.events.metrics import LaneMetrics
from outbox_core.leadership.leader import Totals
from outbox_core.monitoring import names
from outbox_core.monitoring.names import Metric
from outbox_core.monitoring.polls import Data, StatusPolls
from outbox_core.settings import HarvestSettings
from outbox_core.status.clusters import Role
from outbox_core.tracing import conventions


class Harvesting(Protocol):
    """A harvest, or one that is started again after errors. Its properties may be read on any thread."""

    @property
    def takes_part(self) -> bool:
        """Whether this process takes part in the election, warm: it leads, or stands by."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        ...

    @property
    def totals(self) -> Totals:
        """What is harvested here."""
        ...


@dataclass(frozen=True, slots=True)
class RunningOutbox:
    """One outbox that this process harvests."""

    settings: HarvestSettings
    harvest: Harvesting


RunningOutboxes = Callable[[], Sequence[RunningOutbox]]
"""Returns the outboxes that this process harvests now; of templates there may be more later."""


Attributes = Mapping[str, str]

_OF_LANES: Mapping[str, Metric] = {
    "marked": names.MARKED,
    "taken_over": names.TAKEN_OVER,
    "purged": names.PURGED,
    "superseded": names.SUPERSEDED,
    "failed": names.FAILED,
    "aborted": names.ABORTED,
    "transactions": names.TRANSACTIONS,
    "repartitioned": names.REPARTITIONED,
    "paused_seconds": names.PAUSES,
    "recovered": names.RECOVERED,
    "remarks": names.REMARKS,
    "in_flight": names.IN_FLIGHT,
    "waiting": names.WAITING,
    "held": names.BLOCKED_KEYS,
    "held_topics": names.HELD_TOPICS,
}
"""Field of :class:`LaneMetrics` → the metric."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One value of one metric."""

    metric: Metric
    attributes: Attributes
    value: float | Distribution


class HasFigures(Protocol):
    """What can be asked for figures."""

    def wait(self, seconds: float) -> None:
        """Waits so long at most for what is not known yet."""
        ...

    def read(self) -> list[Figure]:
        """Returns all figures as they are known now."""
        ...


class Figures:
    """Reads the figures of the outboxes of this process."""

    def __init__(self, observe: RunningOutboxes, polls: StatusPolls) -> None:
        self._observe = observe
        self._polls = polls

    def wait(self, seconds: float) -> None:
        """Has all databases polled, and waits for that so long at most."""
        self._polls.wait([each.settings for each in self._observe()], seconds)

    def read(self) -> list[Figure]:
        """Returns all figures as they are known now; does not wait for any database."""
        return [figure for each in self._observe() for figure in self._of(each)]

    def _of(self, observed: RunningOutbox) -> Iterator[Figure]:
        outbox = {conventions.OUTBOX: observed.settings.title}
        harvest, totals = observed.harvest, observed.harvest.totals
        yield Figure(names.CANDIDATE, outbox, int(harvest.takes_part))
        yield Figure(names.LEADER, outbox, int(harvest.leads))
        if (token := totals.token) is not None:
            yield Figure(names.FENCE_TOKEN, outbox, token)
        yield Figure(names.UNCOPIED, outbox, totals.uncopied)
        yield Figure(names.FAILOVER_DURATION, outbox, totals.failovers())
        yield Figure(names.FAILOVER_SILENCE, outbox, totals.silences())
        system = observed.settings.publisher.driver
        for lane, work in totals.work().items():
            yield from _of_lane({**outbox, conventions.LANE: str(lane)}, system, work)
        poll = self._polls.known(observed.settings)
        data = poll.data if poll is not None else None
        yield Figure(names.DATABASE_UP, outbox, int(data is not None))
        if data is not None:
            yield from _of_database(outbox, data)


def _of_lane(lane: Attributes, system: str, work: LaneWork) -> Iterator[Figure]:
    yield from _of_metrics(lane, work.metrics)
    measured = work.measurements
    yield Figure(names.DELIVERY_DURATION, lane, measured.deliveries)
    for step, seconds in measured.steps.items():
        yield Figure(names.STEP_DURATION, {**lane, conventions.STEP: step}, seconds)
    for step, sizes in measured.sizes.items():
        yield Figure(names.BATCH_SIZE, {**lane, conventions.STEP: step}, sizes)
    yield from _of_messaging(lane, system, measured)


def _of_metrics(lane: Attributes, metrics: LaneMetrics) -> Iterable[Figure]:
    return [Figure(metric, lane, getattr(metrics, field)) for field, metric in _OF_LANES.items()]


def _of_messaging(lane: Attributes, system: str, measured: Measurements) -> Iterator[Figure]:
    operation = {
        **lane,
        conventions.SYSTEM: system,
        conventions.OPERATION_NAME: conventions.SEND,
        conventions.OPERATION_TYPE: conventions.SEND,
    }
    yield Figure(names.OPERATION_DURATION, operation, measured.operations)
    for topic, records in measured.published.items():
        yield Figure(names.SENT_MESSAGES, {**operation, conventions.DESTINATION: topic}, records)
    failed = {**operation, conventions.ERROR_TYPE: conventions.ERROR_OTHER}
    for topic, records in measured.failed.items():
        yield Figure(names.SENT_MESSAGES, {**failed, conventions.DESTINATION: topic}, records)


def _of_database(outbox: Attributes, data: Data) -> Iterator[Figure]:
    yield Figure(names.BACKLOG, outbox, data["backlog"]["records"])
    # An empty outbox has no oldest record: 0, so that an alarm ends.
    yield Figure(names.BACKLOG_AGE, outbox, max(0.0, data["backlog"]["oldest_seconds"] or 0.0))
    yield Figure(names.PARKED_KEYS, outbox, data["parked"]["keys"])
    yield Figure(names.PARKED_AGE, outbox, max(0.0, data["parked"]["oldest_seconds"] or 0.0))
    yield Figure(names.BLOCKED_AGE, outbox, data["blocked_seconds"])
    yield Figure(names.SILENT_LANES, outbox, sum(lane["silent"] for lane in data["lanes"]))
    orphans = (each["records"] for each in data.get("clusters", ()) if each["role"] == Role.ORPHAN)
    yield Figure(names.ORPHANS, outbox, sum(orphans))
    yield Figure(names.PAUSED, outbox, len(data["pauses"]))
    endless = (each["lasted_seconds"] for each in data["pauses"] if each["until"] is None)
    yield Figure(names.PAUSED_AGE, outbox, max(endless, default=0.0))
    upkeep = data["upkeep"]
    if upkeep["dead"] is not None:
        yield Figure(names.DEAD_ROWS, outbox, upkeep["dead"])
        snapshot = upkeep["snapshot"] or {}
        yield Figure(names.SNAPSHOT_AGE, outbox, snapshot.get("seconds") or 0.0)
