"""The state of an outbox and its harvest at one moment, according to the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from outbox_api.base.errors import DriverError
from outbox_api.portable.view import PortableView
from outbox_api.seams.fence import LaneStatus
from outbox_api.seams.outbox_view import Backlog, Upkeep
from outbox_api.seams.parking import Parked
from outbox_api.seams.pausing import Pause

from outbox_core.settings import MIN_HEARTBEAT_SECONDS, HarvestSettings

if TYPE_CHECKING:
    from outbox_core.status.clusters import ClusterState
    from outbox_core.status.pauses import PauseState
    from outbox_core.status.processes import Processes
    from outbox_core.status.recent import Recent

SILENT_HEARTBEATS = 3.0
"""The default number of missed heartbeats after which a lane counts as silent."""

LEFT_SECONDS = 3.0
"""For how long nobody need lead after a leader has left in order: so long its successor may take."""

OPERATOR = "operator "
"""How the holder of the fence begins once an operator has raised it; the operator's name follows."""

LANE_COLUMNS = ("purged_per_second", "in_flight", "waiting", "purged_total")
TRANSACTION_COLUMNS = ("aborted", "recovered")
_NOTHING_KNOWN = Upkeep()
_TOLD_APART = frozenset(
    {"elector", "election", "member", "silence_before", "intakes", "paused", "recent", "unanswered", "left"}
    | {"dead_letters_copied_until"}
)


@dataclass(frozen=True)
class Snapshot:
    """The state of an outbox at one moment."""

    outbox: str  # the table
    backlog: Backlog  # the records in it
    parked: Parked  # the parked keys
    lanes: Sequence[LaneStatus]
    """The lanes of the present leader, ordered by number; empty before the first leader."""
    longest_silence: float  # seconds without a heartbeat after which a lane counts as silent
    clusters: Sequence[ClusterState] | None = None
    """The records of each cluster of origin; ``None`` where rows do not tell where they were written."""
    upkeep: Upkeep = _NOTHING_KNOWN  # the dead rows, and who keeps them
    pauses: Sequence[PauseState] = ()  # what is paused
    processes: Processes | None = None  # those that harvest it; None if that was not asked for

    @classmethod
    def of(cls, settings: HarvestSettings) -> Snapshot:
        """Connects to the outbox and queries it now."""
        with closing(settings.dialect.create().watch()) as view:
            return cls.take(view, settings)

    @classmethod
    def take(
        cls,
        view: PortableView,
        settings: HarvestSettings,
        beats: float = SILENT_HEARTBEATS,
        *,
        briefly: bool = False,
    ) -> Snapshot:
        """Queries the outbox now.

        Args:
            view: The outbox.
            settings: How it is harvested.
            beats: Heartbeats that a lane may miss before it counts as silent.
            briefly: Whether to ask for no more than its health needs.
        """
        lanes = present_lanes(view.lane_statuses())
        origin = settings.affinity.create().origin()
        clusters = None
        if origin is not None:
            from outbox_core.status.clusters import cluster_states  # noqa: PLC0415 - where there are several

            clusters = cluster_states(view, origin, lanes)
        longest = longest_silence(settings, beats)
        paused = view.pauses()
        backlog, parked = with_intakes(_flowing(view, paused), lanes), view.parked()
        upkeep, pauses = view.upkeep(), list[Any]()
        if paused:
            from outbox_core.status.pauses import pause_states  # noqa: PLC0415 - seldom

            pauses = pause_states(view, paused, [lane for lane in lanes if not is_silent(lane, longest)])
        seen = None
        if not briefly:
            from outbox_core.status.processes import processes  # noqa: PLC0415 - a probe asks for none

            seen = processes(view, lanes, longest)
        return cls(settings.outbox, backlog, parked, lanes, longest, clusters, upkeep, pauses, seen)

    def silent(self, lane: LaneStatus) -> bool:
        """Whether the lane has not written a heartbeat for too long."""
        return is_silent(lane, self.longest_silence)

    @property
    def blocked(self) -> float:
        """Seconds since the first failure of the key that has failed longest; 0 for none."""
        return longest_blocked(lane for lane in self.lanes if not self.silent(lane))

    @property
    def recent(self) -> Recent:
        """What the lanes have done in the last minute."""
        from outbox_core.status.recent import Recent  # noqa: PLC0415 - a probe does not ask

        return Recent.of(lane.metrics for lane in self.lanes if not self.silent(lane))

    def total(self, name: str) -> float:
        """Returns the sum of a metric over the lanes; rates of silent lanes do not count."""
        rate = name.endswith("_per_second")
        counted = (lane for lane in self.lanes if not (rate and self.silent(lane)))
        total: float = sum(lane.metrics.get(name, 0) for lane in counted)
        return total

    def metrics(self, lane: LaneStatus) -> dict[str, Any]:
        """Returns a lane's last metrics, without batches if the lane is silent: they are out of date then."""
        metrics = {name: value for name, value in lane.metrics.items() if name not in _TOLD_APART}
        if "batches" in metrics and self.silent(lane):
            metrics["batches"] = []
        return metrics

    @property
    def transactional_lanes(self) -> Sequence[LaneStatus]:
        """The lanes that report batches: those of exactly-once delivery."""
        return [lane for lane in self.lanes if "batches" in lane.metrics]


def _flowing(view: PortableView, paused: Sequence[Pause]) -> Backlog:
    """Returns the backlog, in which no record counts as the oldest that waits for a pause."""
    backlog = view.backlog([each.topic for each in paused if each.topic])
    return replace(backlog, oldest=None) if any(not each.topic for each in paused) else backlog


class Views:
    """Connections to outboxes that are queried again and again; a context manager."""

    def __init__(self) -> None:
        self._views: dict[str, PortableView] = {}

    def snapshot(self, settings: HarvestSettings) -> Snapshot:
        """Queries an outbox now; connects if need be. One thread at a time for each outbox."""
        try:
            view = self._views.get(settings.title) or settings.dialect.create().watch()
            self._views[settings.title] = view
            return Snapshot.take(view, settings)
        except DriverError:
            self._close(settings.title)
            raise

    def _close(self, title: str) -> None:
        view = self._views.pop(title, None)
        if view is not None:
            view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for title in list(self._views):
            self._close(title)


def as_data(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the snapshot as JSON data: times in seconds, instants in ISO 8601."""
    from outbox_core.status.clusters import clusters_as_data  # noqa: PLC0415 - likewise
    from outbox_core.status.dead_rows import as_data as upkeep_as_data  # noqa: PLC0415 - likewise
    from outbox_core.status.pauses import pauses_as_data  # noqa: PLC0415 - likewise
    from outbox_core.status.processes import processes_as_data  # noqa: PLC0415 - likewise
    from outbox_core.status.recent import as_data as recent_as_data  # noqa: PLC0415 - a probe needs no data

    leader, left = snapshot.lanes[0] if snapshot.lanes else None, left_at(snapshot.lanes)
    clusters = {} if snapshot.clusters is None else {"clusters": clusters_as_data(snapshot.clusters)}
    return {
        "outbox": snapshot.outbox,
        "backlog": {
            "records": snapshot.backlog.records,
            "exact": snapshot.backlog.exact,
            "oldest_seconds": snapshot.backlog.oldest,
        },
        "parked": {"keys": snapshot.parked.keys, "oldest_seconds": snapshot.parked.oldest},
        "blocked_seconds": snapshot.blocked,
        "upkeep": upkeep_as_data(snapshot.upkeep),
        **clusters,
        "pauses": pauses_as_data(snapshot.pauses),
        "leader": leader
        and {
            "name": leader.holder,
            "token": leader.fence.token,
            "since": leader.since.isoformat(),
            "left": left and left.isoformat(),
            "elector": leader.metrics.get("elector"),
            "silence_before_seconds": leader.metrics.get("silence_before"),
        },
        "processes": processes_as_data(snapshot.processes),
        "total": {name: snapshot.total(name) for name in (*LANE_COLUMNS, *TRANSACTION_COLUMNS)},
        **recent_as_data(snapshot.recent),
        "lanes": [
            {
                "lane": lane.fence.lane,
                "epoch": lane.fence.epoch,
                "heartbeat": lane.heartbeat_at and lane.heartbeat_at.isoformat(),
                "heartbeat_age_seconds": lane.age,
                "silent": snapshot.silent(lane),
                **snapshot.metrics(lane),
            }
            for lane in snapshot.lanes
        ],
    }


def present_lanes(lane_statuses: Iterable[LaneStatus]) -> list[LaneStatus]:
    """Returns the lanes of the present leader, in the order given; none before the first.

    There is always a lane 0, so its row knows the present leader's number of lanes. Rows beyond belong to an
    earlier leader with more lanes; they are fenced for good.
    """
    held = list(lane_statuses)
    count = next((lane_status.fence.lanes for lane_status in held if lane_status.fence.lane == 0), 0)
    return [lane_status for lane_status in held if lane_status.fence.lane < count]


def left_at(lanes: Sequence[LaneStatus]) -> datetime | None:
    """Returns when the leader with these lanes left in order; ``None`` if it did not, or nobody ever led."""
    moments = [lane.heartbeat_at for lane in lanes if lane.metrics.get("left")]
    return max(filter(None, moments), default=None) if len(moments) == len(lanes) else None


def is_silent(lane: LaneStatus, longest: float, now: datetime | None = None) -> bool:
    """Returns whether a lane has written no reading for too long; ``longest`` holds until it has left."""
    return silence(lane, now) > (min(longest, LEFT_SECONDS) if lane.metrics.get("left") else longest)


def silence(lane: LaneStatus, now: datetime | None = None) -> float:
    """Returns for how many seconds a lane has written no reading.

    Before its first reading, that is since its leader raised the token; only then does the clock of this
    machine matter beside the database's.
    """
    if lane.age is not None:
        return lane.age
    return ((now or datetime.now(UTC)) - lane.since).total_seconds()


def longest_silence(settings: HarvestSettings, beats: float = SILENT_HEARTBEATS) -> float:
    """Returns the seconds after which a lane without a reading counts as silent."""
    return beats * max(settings.limits.min_metrics_interval, MIN_HEARTBEAT_SECONDS)


def intakes(lanes: Iterable[LaneStatus]) -> list[dict[str, Any]]:
    """Returns what the leader says of the tables that it takes rows in from."""
    return [each for lane in lanes for each in lane.metrics.get("intakes", ())]


def with_intakes(backlog: Backlog, lanes: Iterable[LaneStatus]) -> Backlog:
    """Counts for how long rows that cannot be taken in have waited: where they do, they may have no time."""
    waited = [max(each["stuck"], each["held_for"]) for each in intakes(lanes)]
    if not any(waited):
        return backlog
    return replace(backlog, oldest=max(*waited, backlog.oldest or 0.0))


def longest_blocked(lanes: Iterable[LaneStatus]) -> float:
    """Returns the seconds since the first failure of the key that has failed longest; 0 for none."""
    return max((lane.metrics.get("blocked_seconds", 0.0) for lane in lanes), default=0.0)
