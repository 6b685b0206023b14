"""The state of an outbox that ``outbox status`` shows, as data and as text."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

from outbox_sdk.backlog import Backlog
from outbox_sdk.errors import DriverError
from outbox_sdk.fence import LaneStatus
from outbox_sdk.outbox_view import OutboxView
from outbox_sdk.parking import Parked
from outbox_sdk.upkeep import Upkeep
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.cli.clusters import clusters_as_data, clusters_as_text
from outbox_core.cli.terminal import printable
from outbox_core.clusters import ClusterState, cluster_states
from outbox_core.config import HarvestSettings
from outbox_core.config.duration import format_duration
from outbox_core.dead_rows import as_data as upkeep_as_data
from outbox_core.dead_rows import dead_rows, is_old, kept
from outbox_core.health import Thresholds, longest_blocked, longest_silence, present_lanes, silence

_COLUMNS = ("purged_per_second", "in_flight", "waiting", "purged_total")
_TRANSACTION_COLUMNS = ("aborted", "recovered")
_NOTHING_KNOWN = Upkeep()
_ABOUT_LEADER = frozenset({"elector", "silence_before"})


@dataclass(frozen=True)
class Snapshot:
    """The state of an outbox at one moment.

    Attributes:
        outbox: The table.
        backlog: The records in it.
        parked: The parked keys.
        lanes: The lanes of the present leader, ordered by number; empty before the first leader.
        longest_silence: Seconds without a heartbeat after which a lane counts as silent.
        clusters: The records of each cluster of origin; ``None`` where rows do not tell where they were
            written.
        upkeep: The dead rows, and who keeps them.
    """

    outbox: str
    backlog: Backlog
    parked: Parked
    lanes: Sequence[LaneStatus]
    longest_silence: float
    clusters: Sequence[ClusterState] | None = None
    upkeep: Upkeep = _NOTHING_KNOWN

    @classmethod
    def of(cls, settings: HarvestSettings) -> "Snapshot":
        """Connects to the outbox and queries it now."""
        with closing(settings.dialect.create().watch()) as view:
            return cls.take(view, settings)

    @classmethod
    def take(cls, view: OutboxView, settings: HarvestSettings) -> "Snapshot":
        """Queries the outbox now."""
        lanes = present_lanes(view.lane_statuses())
        origin = settings.affinity.create().origin()
        clusters = None if origin is None else cluster_states(view, origin, lanes)
        longest = longest_silence(settings)
        backlog, parked = view.backlog(), view.parked()
        return cls(settings.outbox, backlog, parked, lanes, longest, clusters, view.upkeep())

    def silent(self, lane: LaneStatus) -> bool:
        """Whether the lane has not written a heartbeat for too long."""
        return silence(lane) > self.longest_silence

    @property
    def blocked(self) -> float:
        """Seconds since the first failure of the key that has failed longest; 0 for none."""
        return longest_blocked(lane for lane in self.lanes if not self.silent(lane))

    def total(self, name: str) -> float:
        """Returns the sum of a metric over the lanes; rates of silent lanes do not count."""
        rate = name.endswith("_per_second")
        counted = (lane for lane in self.lanes if not (rate and self.silent(lane)))
        total: float = sum(lane.metrics.get(name, 0) for lane in counted)
        return total

    def metrics(self, lane: LaneStatus) -> dict[str, Any]:
        """Returns a lane's last metrics, without batches if the lane is silent: they are out of date then."""
        metrics = {name: value for name, value in lane.metrics.items() if name not in _ABOUT_LEADER}
        if "batches" in metrics and self.silent(lane):
            metrics["batches"] = []
        return metrics

    @property
    def transactional_lanes(self) -> Sequence[LaneStatus]:
        """The lanes that report batches: those of exactly-once delivery."""
        return [lane for lane in self.lanes if "batches" in lane.metrics]


class Watches:
    """Connections to outboxes that are queried again and again; a context manager."""

    def __init__(self) -> None:
        self._views: dict[str, OutboxView] = {}

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
    leader = snapshot.lanes[0] if snapshot.lanes else None
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
        "leader": leader
        and {
            "name": leader.holder,
            "token": leader.fence.token,
            "since": leader.since.isoformat(),
            "elector": leader.metrics.get("elector"),
            "silence_before_seconds": leader.metrics.get("silence_before"),
        },
        "total": {name: snapshot.total(name) for name in (*_COLUMNS, *_TRANSACTION_COLUMNS)},
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


def as_text(snapshot: Snapshot) -> RenderableType:
    """Returns the snapshot as text for people."""
    parts: list[RenderableType] = [_summary(snapshot)]
    if snapshot.clusters is not None:
        parts.append(clusters_as_text(snapshot.clusters))
    if snapshot.lanes:
        parts.append(_lanes(snapshot))
        if snapshot.transactional_lanes:
            parts.append(_batches(snapshot))
        if all(snapshot.silent(lane) for lane in snapshot.lanes):
            parts.append(
                Text("no lane has written a heartbeat for a while: is a harvester running?", "yellow")
            )
    return Group(*parts)


def _summary(snapshot: Snapshot) -> Table:
    summary = Table.grid(padding=(0, 2))
    backlog = snapshot.backlog
    about = "" if backlog.exact else "about "
    oldest = "" if backlog.oldest is None else f", the oldest {format_duration(max(0.0, backlog.oldest))} old"
    summary.add_row(Text("outbox", "dim"), Text(snapshot.outbox, "bold"))
    summary.add_row(Text("backlog", "dim"), Text(f"{about}{backlog.records:,} records{oldest}"))
    summary.add_row(Text("parked", "dim"), _parked(snapshot.parked))
    if snapshot.upkeep.dead is not None:
        summary.add_row(Text("upkeep", "dim"), _upkeep(snapshot.upkeep))
    if not snapshot.lanes:
        summary.add_row(Text("leader", "dim"), Text("none yet: nobody has ever led", "yellow"))
        return summary
    leader = snapshot.lanes[0]
    since = leader.since.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    summary.add_row(
        Text("leader", "dim"), Text(f"{leader.holder}, since {since}, fence token {leader.fence.token}")
    )
    if elector := leader.metrics.get("elector"):
        heard = leader.metrics.get("silence_before")
        before = "" if heard is None else f", {format_duration(round(heard, 1))} after the former was heard"
        summary.add_row(Text("elector", "dim"), Text(f"{elector}{before}"))
    rate = snapshot.total("purged_per_second")
    summary.add_row(Text("rate", "dim"), Text(f"{rate:,.0f} records/s"))
    if snapshot.blocked:
        failing = f"a key has been failing for {format_duration(snapshot.blocked)}"
        summary.add_row(Text("blocked", "dim"), Text(failing, "yellow"))
    return summary


def _parked(parked: Parked) -> Text:
    if not parked.keys:
        return Text("0 keys")
    since = "" if parked.oldest is None else f", the first for {format_duration(max(0.0, parked.oldest))}"
    return Text(f"{parked.keys:,} key{'' if parked.keys == 1 else 's'}{since}", "bold red")


def _upkeep(upkeep: Upkeep) -> Text:
    limits = Thresholds()
    vacuumed = upkeep.vacuumed
    after = "" if vacuumed is None else f", {format_duration(max(0.0, round(vacuumed)))} after a vacuum"
    said, snapshot = f"{dead_rows(upkeep)}{after}", upkeep.snapshot
    if snapshot is None or not is_old(snapshot, limits.snapshot):
        return Text(said)
    return Text(f"{said}; {printable(kept(snapshot))}", "yellow")


def _lanes(snapshot: Snapshot) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in (
        "lane",
        "records/s",
        "in flight",
        "waiting",
        "purged",
        "blocked",
        "epoch",
        "last heartbeat",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for lane in snapshot.lanes:
        silent = snapshot.silent(lane)
        heartbeat_at = "never" if lane.age is None else format_duration(max(0.0, round(lane.age, 1)))
        metrics_by_lane = [f"{lane.metrics[name]:,.0f}" if name in lane.metrics else "-" for name in _COLUMNS]
        table.add_row(
            str(lane.fence.lane),
            *metrics_by_lane,
            format_duration(blocked) if (blocked := longest_blocked([lane])) else "-",
            str(lane.fence.epoch),
            Text(f"silent {heartbeat_at}" if silent else f"{heartbeat_at} ago", "yellow" if silent else ""),
            style="dim" if silent else "",
        )
    return table


def _batches(snapshot: Snapshot) -> Table:
    """Shows the stage of each lane's batches, the oldest first."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("lane", *_TRANSACTION_COLUMNS):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("batches")
    for lane in snapshot.transactional_lanes:
        silent = snapshot.silent(lane)
        batches = ", ".join(
            f"{batch['stage']} {batch['records']:,}" for batch in snapshot.metrics(lane)["batches"]
        )
        counts = (f"{lane.metrics.get(name, 0):,.0f}" for name in _TRANSACTION_COLUMNS)
        text = Text("silent" if silent else batches or "none", "yellow" if silent else "")
        table.add_row(str(lane.fence.lane), *counts, text, style="dim" if silent else "")
    return table
