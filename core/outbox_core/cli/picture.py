"""What ``outbox status`` shows, as data and as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outbox_sdk.dialect import Backlog, LaneStatus, OutboxTable
from outbox_sdk.parking import Parked
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.config import HarvestSettings
from outbox_core.config.duration import format_duration
from outbox_core.health import longest_blocked, longest_silence, present_lanes, silence

_SHOWN = ("purged_per_second", "in_flight", "waiting", "purged_total")
_TRANSACTIONS = ("aborted", "recovered")
_SHORT = 8
"""Digits of a batch's name that tell it from the others of its lane."""


@dataclass(frozen=True)
class Picture:
    """One look at an outbox.

    Attributes:
        outbox: The table.
        backlog: What waits in it.
        parked: What is set aside.
        lanes: The lanes of the present leader, ordered by number; empty before the first leader.
        longest_silence: Seconds without a reading after which a lane counts as silent.
    """

    outbox: str
    backlog: Backlog
    parked: Parked
    lanes: Sequence[LaneStatus]
    longest_silence: float

    @classmethod
    def take(cls, table: OutboxTable, settings: HarvestSettings) -> "Picture":
        """Looks at the outbox now."""
        lanes = present_lanes(table.lane_statuses())
        return cls(settings.outbox, table.backlog(), table.parked(), lanes, longest_silence(settings))

    def silent(self, lane: LaneStatus) -> bool:
        """Whether the lane should have written a reading by now."""
        return silence(lane) > self.longest_silence

    @property
    def blocked(self) -> float:
        """Seconds since the first failure of the key that has failed longest; 0 for none."""
        return longest_blocked(lane for lane in self.lanes if not self.silent(lane))

    def total(self, name: str) -> float:
        """Returns the sum of a reading over the lanes; a rate counts only where the lane is not silent."""
        rate = name.endswith("_per_second")
        counted = (lane for lane in self.lanes if not (rate and self.silent(lane)))
        total: float = sum(lane.metrics.get(name, 0) for lane in counted)
        return total

    def metrics(self, lane: LaneStatus) -> dict[str, Any]:
        """Returns a lane's last reading; a silent lane has no batches that one could still follow."""
        metrics = dict(lane.metrics)
        if "batches" in metrics and self.silent(lane):
            metrics["batches"] = []
        return metrics

    @property
    def transactional_lanes(self) -> Sequence[LaneStatus]:
        """The lanes that have told of batches, as those of exactly-once delivery do."""
        return [lane for lane in self.lanes if "batches" in lane.metrics]


def as_data(picture: Picture) -> dict[str, Any]:
    """Returns the picture as JSON data: times in seconds, instants in ISO 8601."""
    leader = picture.lanes[0] if picture.lanes else None
    return {
        "outbox": picture.outbox,
        "backlog": {
            "records": picture.backlog.records,
            "exact": picture.backlog.exact,
            "oldest_seconds": picture.backlog.oldest,
        },
        "parked": {"keys": picture.parked.keys, "oldest_seconds": picture.parked.oldest},
        "blocked_seconds": picture.blocked,
        "leader": leader
        and {"name": leader.holder, "token": leader.fence.token, "since": leader.since.isoformat()},
        "total": {name: picture.total(name) for name in (*_SHOWN, *_TRANSACTIONS)},
        "lanes": [
            {
                "lane": lane.fence.lane,
                "epoch": lane.fence.epoch,
                "heartbeat": lane.heartbeat_at and lane.heartbeat_at.isoformat(),
                "heartbeat_age_seconds": lane.age,
                "silent": picture.silent(lane),
                **picture.metrics(lane),
            }
            for lane in picture.lanes
        ],
    }


def as_text(picture: Picture) -> RenderableType:
    """Returns the picture for people."""
    parts: list[RenderableType] = [_summary(picture)]
    if picture.lanes:
        parts.append(_lanes(picture))
        if picture.transactional_lanes:
            parts.append(_batches(picture))
        if all(picture.silent(lane) for lane in picture.lanes):
            parts.append(Text("no lane has written a reading for a while: is a harvester running?", "yellow"))
    return Group(*parts)


def _summary(picture: Picture) -> Table:
    summary = Table.grid(padding=(0, 2))
    backlog = picture.backlog
    about = "" if backlog.exact else "about "
    oldest = "" if backlog.oldest is None else f", the oldest {format_duration(max(0.0, backlog.oldest))} old"
    summary.add_row(Text("outbox", "dim"), Text(picture.outbox, "bold"))
    summary.add_row(Text("backlog", "dim"), Text(f"{about}{backlog.records:,} records{oldest}"))
    summary.add_row(Text("parked", "dim"), _parked(picture.parked))
    if not picture.lanes:
        summary.add_row(Text("leader", "dim"), Text("none yet: nobody has ever led", "yellow"))
        return summary
    leader = picture.lanes[0]
    since = leader.since.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    summary.add_row(
        Text("leader", "dim"), Text(f"{leader.holder}, since {since}, fence token {leader.fence.token}")
    )
    rate = picture.total("purged_per_second")
    summary.add_row(Text("rate", "dim"), Text(f"{rate:,.0f} records/s"))
    if picture.blocked:
        failing = f"a key has been failing for {format_duration(picture.blocked)}"
        summary.add_row(Text("blocked", "dim"), Text(failing, "yellow"))
    return summary


def _parked(parked: Parked) -> Text:
    if not parked.keys:
        return Text("0 keys")
    since = "" if parked.oldest is None else f", the first for {format_duration(max(0.0, parked.oldest))}"
    return Text(f"{parked.keys:,} key{'' if parked.keys == 1 else 's'}{since}", "bold red")


def _lanes(picture: Picture) -> Table:
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
    for lane in picture.lanes:
        silent = picture.silent(lane)
        heartbeat_at = "never" if lane.age is None else format_duration(max(0.0, round(lane.age, 1)))
        metrics_by_lane = [f"{lane.metrics[name]:,.0f}" if name in lane.metrics else "-" for name in _SHOWN]
        table.add_row(
            str(lane.fence.lane),
            *metrics_by_lane,
            format_duration(blocked) if (blocked := longest_blocked([lane])) else "-",
            str(lane.fence.epoch),
            Text(f"silent {heartbeat_at}" if silent else f"{heartbeat_at} ago", "yellow" if silent else ""),
            style="dim" if silent else "",
        )
    return table


def _batches(picture: Picture) -> Table:
    """Shows where each lane's batches have come to, in the lane's own order: the oldest first."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("lane", *_TRANSACTIONS):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("batches")
    for lane in picture.transactional_lanes:
        silent = picture.silent(lane)
        batches = ", ".join(
            f"{str(batch['name'])[:_SHORT]} {batch['stage']} {batch['records']:,}"
            for batch in picture.metrics(lane)["batches"]
        )
        counts = (f"{lane.metrics.get(name, 0):,.0f}" for name in _TRANSACTIONS)
        text = Text("silent" if silent else batches or "none", "yellow" if silent else "")
        table.add_row(str(lane.fence.lane), *counts, text, style="dim" if silent else "")
    return table
