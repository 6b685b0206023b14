"""The state of one outbox, of its clusters, or of several outboxes as text, for ``outbox status``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from outbox_api.base.errors import OutboxError
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.status.clusters import Role
from outbox_core.status.model import LANE_HEADINGS, Cluster, Figures, Leader, Status, status_of
from outbox_core.status.snapshot import TRANSACTION_COLUMNS, Snapshot
from outbox_core.status.verdict import LastStatus, State
from outbox_core.text.printable import printable
from outbox_core.text.wording import date_and_clock, date_clock_and_zone

if TYPE_CHECKING:
    from outbox_core.status.pauses import PauseState

OVERVIEW_HEADINGS = ("outbox", "backlog", "oldest", "parked", "records/s", "leader", "since", "elector")
OVERVIEW_NUMBERS = frozenset({"backlog", "oldest", "parked", "records/s"})
_HEADINGS = ("cluster", "", "backlog", "oldest", "taken over", "takeover")
_NUMBERS = frozenset({"cluster", "backlog", "oldest", "taken over"})
_ROLES = {Role.OWN: "own", Role.OTHER: "other", Role.ORPHAN: "orphan: nobody serves it"}


def clusters_as_text(clusters: Sequence[Cluster]) -> Table:
    """Returns a table with a line for each cluster."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    for each in clusters:
        table.add_row(
            str(each.number),
            Text(_ROLES[each.role], "yellow" if each.orphans else ""),
            each.records,
            each.oldest or "-",
            Text(each.taken_over, "yellow" if each.recent else ""),
            _takeover(each),
        )
    return table


def _takeover(each: Cluster) -> Text:
    if each.takeover_since is None:
        return Text("-")
    reason = f": {each.takeover_reason}" if each.takeover_reason else ""
    return Text(f"deliberate since {date_clock_and_zone(each.takeover_since)}{reason}", "yellow")


STYLES = {State.WELL: "green", State.PROBLEMS: "bold yellow"}
"""The styles of states; of others: yellow."""


def present(snapshot: Snapshot) -> Status:
    """Returns the status of an outbox of which this is known now."""
    now = datetime.now(UTC)
    return status_of(snapshot.outbox, LastStatus(snapshot, now), now)


def as_text(snapshot: Snapshot) -> RenderableType:
    """Returns the snapshot as text for people."""
    return status_as_text(present(snapshot), snapshot.pauses)


def status_as_text(status: Status, pauses: Sequence[PauseState]) -> RenderableType:
    """Returns a status as text for people, and what is paused."""
    parts: list[RenderableType] = [_summary(status)]
    if status.clusters is not None:
        parts.append(clusters_as_text(status.clusters))
    if pauses:
        from outbox_core.cli.pause import pauses_as_text  # noqa: PLC0415 - seldom

        parts.append(pauses_as_text(pauses))
    if status.processes_unknown:
        parts.append(Text(f"processes: not known: {printable(status.processes_unknown)}", "yellow"))
    if status.processes:
        parts.append(_processes(status))
    if status.topics:
        parts.append(_topics(status))
    if status.lanes:
        parts.append(_lanes(status))
    if status.transactional:
        parts.append(_batches(status))
    return Group(*parts)


def _summary(status: Status) -> Table:
    summary = Table.grid(padding=(0, 2))
    verdict, figures = status.verdict, status.figures
    summary.add_row(Text("outbox", "dim"), Text(printable(status.table or status.title), "bold"))
    summary.add_row(Text("state", "dim"), Text(verdict.said, STYLES.get(verdict.state, "yellow")))
    rows: list[tuple[str, Text]] = []
    if status.seen is not None and status.age:
        rows.append(("as of", Text(f"{date_clock_and_zone(status.seen)}, {status.age} ago", "yellow")))
    if figures is not None:
        rows += [*_leader(status.leader), *_figures(figures)]
    if status.latency:
        said = f"p50 {status.latency.p50}, p99 {status.latency.p99}, from creation to the broker's answer"
        rows.append(("latency", Text(said)))
    if status.leader is not None and status.leader.elector:
        rows.append(("elector", _elector(status.leader)))
    rows += [
        ("why", Text(f"{each.code}: {each.text}", "yellow")) for each in (*verdict.reasons, *verdict.remarks)
    ]
    for name, text in rows:
        summary.add_row(Text(name, "dim"), text)
    return summary


def _figures(figures: Figures) -> list[tuple[str, Text]]:
    oldest = f", the oldest {figures.oldest} old" if figures.oldest else ""
    if figures.withheld:
        oldest = f", {figures.withheld}"
    keys = f"{figures.parked} key{'' if figures.parked_keys == 1 else 's'}"
    since = f", the first for {figures.parked_for}" if figures.parked_keys and figures.parked_for else ""
    rows = [
        ("backlog", Text(f"{figures.backlog} records{oldest}")),
        ("parked", Text(f"{keys}{since}", "bold red" if figures.parked_keys else "")),
        ("rate", Text(f"{figures.rate} records/s")),
    ]
    if figures.upkeep:
        rows.append(("upkeep", Text(printable(figures.upkeep), "yellow" if figures.upkeep_is_old else "")))
    if figures.blocked:
        rows.append(("blocked", Text(f"a key has been failing for {figures.blocked}", "yellow")))
    return rows


def _leader(leader: Leader | None) -> list[tuple[str, Text]]:
    if leader is None:
        return [("leader", Text("none yet: nobody has ever led", "yellow"))]
    if leader.left:
        said = f"none: {printable(leader.name)} left at {date_clock_and_zone(leader.left)}"
        return [("leader", Text(f"{said}, fence token {leader.token}", "yellow"))]
    silent = ", silent" if leader.silent else ""
    since = f"since {date_clock_and_zone(leader.since)}, fence token {leader.token}{silent}"
    return [("leader", Text(f"{printable(leader.name)}, {since}", "yellow" if leader.silent else ""))]


def _elector(leader: Leader) -> Text:
    before = f", {leader.before} after the previous leader's last heartbeat" if leader.before else ""
    return Text(f"{printable(leader.elector)}{before}")


def _processes(status: Status) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("process", "role", "version", "engine", "since", "noted"):
        table.add_column(heading, overflow="fold")
    for each in status.processes:
        heard = Text(f"silent, {each.heard}", "yellow") if each.silent else Text(each.heard)
        texts = map(Text, (each.name, each.role, each.version, each.engine, date_and_clock(each.since)))
        table.add_row(*texts, heard, style="dim" if each.silent else "")
    return table


def _topics(status: Status) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("topic", overflow="fold")
    for heading in ("records/s", "share", "failed in the last minute"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for each in status.topics:
        failed = Text(each.failed, "yellow" if each.fails else "")
        paused = Text("paused" if each.paused else "", "yellow")
        table.add_row(Text(each.topic), each.rate, each.share or "-", failed, paused)
    return table


def _lanes(status: Status) -> Table:
    table = _table("lane", *LANE_HEADINGS, "blocked", "starts", "last heartbeat")
    for lane in status.lanes:
        heard = Text(f"silent {lane.heartbeat}", "yellow") if lane.silent else Text(lane.heartbeat)
        figures = lane.figures[: len(LANE_HEADINGS)]
        cells = (str(lane.number), *figures, lane.blocked or "-", str(lane.epoch))
        table.add_row(*cells, heard, style="dim" if lane.silent else "")
    return table


def _batches(status: Status) -> Table:
    """Shows the stage of each lane's batches, the oldest first."""
    table = _table("lane", *TRANSACTION_COLUMNS)
    table.add_column("batches")
    for lane in status.lanes:
        text = Text("silent", "yellow") if lane.silent else Text(lane.batches or "none")
        figures = lane.figures[len(LANE_HEADINGS) :]
        table.add_row(str(lane.number), *figures, text, style="dim" if lane.silent else "")
    return table


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def overview(found: Sequence[tuple[str, Snapshot | OutboxError]]) -> RenderableType:
    """Returns a table of outboxes: the title of each, and its state unless that is not known."""
    if not found:
        return "the configuration names no outbox, and its templates match no table"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    apart = any(isinstance(state, Snapshot) and state.clusters is not None for _, state in found)
    for heading in (*OVERVIEW_HEADINGS, "takes over") if apart else OVERVIEW_HEADINGS:
        numeric = heading in OVERVIEW_NUMBERS
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for title, state in found:
        if isinstance(state, OutboxError):
            table.add_row(Text(printable(title), "bold"), *"----", Text("not known, see below", "yellow"))
        else:
            status = present(state)
            cells = [*overview_cells(status), _taken_over(status)] if apart else overview_cells(status)
            table.add_row(Text(printable(title), "bold"), *cells)
    return table


def _taken_over(status: Status) -> Text:
    """Names the clusters whose records this one takes over."""
    return Text(status.takes_over or "-", "yellow" if status.takes_over else "")


def overview_cells(status: Status) -> list[Text]:
    """Returns what the line of an outbox says behind its title, if it was ever seen."""
    figures, leader = status.figures, status.leader
    if figures is None:
        return [Text("-") for _ in OVERVIEW_HEADINGS[1:]]
    cells = [
        Text(figures.backlog),
        Text(figures.oldest or "-"),
        Text(figures.parked, "bold red" if figures.parked_keys else ""),
        Text(figures.rate),
    ]
    if leader is None:
        return [*cells, Text("none yet", "yellow"), Text("-"), Text("-")]
    state = " (left)" if leader.left else " (silent)" if leader.silent else ""
    elector = Text(printable(leader.elector) or "-")
    return [
        *cells,
        Text(f"{printable(leader.name)}{state}", "yellow" if state else ""),
        Text(date_and_clock(leader.since)),
        elector,
    ]
