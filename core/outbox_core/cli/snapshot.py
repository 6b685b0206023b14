"""The state of an outbox as text for people, for ``outbox status``."""

from outbox_sdk.parking import Parked
from outbox_sdk.upkeep import Upkeep
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.cli.clusters import clusters_as_text
from outbox_core.config.duration import format_duration
from outbox_core.dead_rows import dead_rows, is_old, kept
from outbox_core.health import Thresholds
from outbox_core.printable import printable
from outbox_core.snapshot import LANE_COLUMNS, TRANSACTION_COLUMNS, Snapshot, longest_blocked


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
    summary.add_row(Text("outbox", "dim"), Text(printable(snapshot.outbox), "bold"))
    summary.add_row(Text("backlog", "dim"), Text(f"{about}{backlog.records:,} records{oldest}"))
    summary.add_row(Text("parked", "dim"), _parked(snapshot.parked))
    if snapshot.upkeep.dead is not None:
        summary.add_row(Text("upkeep", "dim"), _upkeep(snapshot.upkeep))
    if snapshot.starting:
        names = ", ".join(map(printable, snapshot.starting))
        summary.add_row(Text("starting", "dim"), Text(f"{names}: the engine starts"))
    if not snapshot.lanes:
        summary.add_row(Text("leader", "dim"), Text("none yet: nobody has ever led", "yellow"))
        return summary
    leader = snapshot.lanes[0]
    since = leader.since.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    summary.add_row(
        Text("leader", "dim"),
        Text(f"{printable(leader.holder)}, since {since}, fence token {leader.fence.token}"),
    )
    if elector := leader.metrics.get("elector"):
        heard = leader.metrics.get("silence_before")
        before = "" if heard is None else f", {format_duration(round(heard, 1))} after the former was heard"
        summary.add_row(Text("elector", "dim"), Text(f"{printable(str(elector))}{before}"))
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
        metrics_by_lane = [
            f"{lane.metrics[name]:,.0f}" if name in lane.metrics else "-" for name in LANE_COLUMNS
        ]
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
    for heading in ("lane", *TRANSACTION_COLUMNS):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("batches")
    for lane in snapshot.transactional_lanes:
        silent = snapshot.silent(lane)
        batches = ", ".join(
            f"{batch['stage']} {batch['records']:,}" for batch in snapshot.metrics(lane)["batches"]
        )
        counts = (f"{lane.metrics.get(name, 0):,.0f}" for name in TRANSACTION_COLUMNS)
        text = Text("silent" if silent else batches or "none", "yellow" if silent else "")
        table.add_row(str(lane.fence.lane), *counts, text, style="dim" if silent else "")
    return table
