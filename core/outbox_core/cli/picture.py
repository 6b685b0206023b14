"""What ``outbox status`` shows, as data and as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outbox_sdk.dialect import Backlog, Holding, OutboxTable
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.config import HarvestSettings
from outbox_core.config.duration import format_duration

_SILENT_BEATS = 3.0
"""A lane that has missed this many beats counts as silent."""

_SHOWN = ("purged_per_second", "in_flight", "waiting", "parked", "purged_total")


@dataclass(frozen=True)
class Picture:
    """One look at an outbox.

    Attributes:
        outbox: The table.
        backlog: What waits in it.
        lanes: The lanes of the present leader, ordered by number; empty before the first leader.
        beat_seconds: How often a lane writes its reading.
    """

    outbox: str
    backlog: Backlog
    lanes: Sequence[Holding]
    beat_seconds: float

    @classmethod
    def take(cls, table: OutboxTable, settings: HarvestSettings) -> "Picture":
        """Looks at the outbox now."""
        holdings = table.holdings()
        # There is always a lane 0, so its row knows the present leader's number of lanes. Rows beyond belong
        # to an earlier leader with more lanes; they are fenced for good.
        count = next((held.fence.lanes for held in holdings if held.fence.lane == 0), 0)
        lanes = [held for held in holdings if held.fence.lane < count]
        beat = max(settings.limits.min_metrics_interval, 1.0)
        return cls(settings.outbox, table.backlog(), lanes, beat)

    def silent(self, lane: Holding) -> bool:
        """Whether the lane should have written a reading by now."""
        return lane.age is None or lane.age > _SILENT_BEATS * self.beat_seconds

    def total(self, name: str) -> float:
        """Returns the sum of a reading over the lanes; a rate counts only where the lane is not silent."""
        rate = name.endswith("_per_second")
        return sum(lane.reading.get(name, 0) for lane in self.lanes if not (rate and self.silent(lane)))


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
        "leader": leader
        and {"name": leader.holder, "token": leader.fence.token, "since": leader.since.isoformat()},
        "total": {name: picture.total(name) for name in _SHOWN},
        "lanes": [
            {
                "lane": lane.fence.lane,
                "attempt": lane.fence.attempt,
                "beat": lane.beat and lane.beat.isoformat(),
                "beat_age_seconds": lane.age,
                "silent": picture.silent(lane),
                **lane.reading,
            }
            for lane in picture.lanes
        ],
    }


def as_text(picture: Picture) -> RenderableType:
    """Returns the picture for people."""
    parts: list[RenderableType] = [_summary(picture)]
    if picture.lanes:
        parts.append(_lanes(picture))
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
    if not picture.lanes:
        summary.add_row(Text("leader", "dim"), Text("none yet: nobody has ever led", "yellow"))
        return summary
    leader = picture.lanes[0]
    since = leader.since.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    summary.add_row(
        Text("leader", "dim"), Text(f"{leader.holder}, since {since}, fence token {leader.fence.token}")
    )
    rate = picture.total("purged_per_second")
    parked = picture.total("parked")
    summary.add_row(Text("rate", "dim"), Text(f"{rate:,.0f} records/s"))
    summary.add_row(Text("parked", "dim"), Text(f"{parked:,.0f} keys", "bold red" if parked else ""))
    return summary


def _lanes(picture: Picture) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("lane", "records/s", "in flight", "waiting", "parked", "purged", "attempt", "last beat"):
        table.add_column(heading, justify="right", no_wrap=True)
    for lane in picture.lanes:
        silent = picture.silent(lane)
        beat = "never" if lane.age is None else format_duration(max(0.0, round(lane.age, 1)))
        readings = [f"{lane.reading[name]:,.0f}" if name in lane.reading else "-" for name in _SHOWN]
        table.add_row(
            str(lane.fence.lane),
            *readings,
            str(lane.fence.attempt),
            Text(f"silent {beat}" if silent else f"{beat} ago", "yellow" if silent else ""),
            style="dim" if silent else "",
        )
    return table
