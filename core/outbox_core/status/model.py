"""What is shown of outboxes, as plain values: from what is known of them, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING

from outbox_api.seams.fence import LaneStatus

from outbox_core.status.clusters import ClusterState, Role, taken_over_from
from outbox_core.status.dead_rows import dead_rows, is_old, kept
from outbox_core.status.health import Thresholds
from outbox_core.status.model_rows import (
    Latency,
    ProcessRow,
    TopicRow,
    Word,
    latency_of,
    process_row,
    topic_rows,
)
from outbox_core.status.snapshot import (
    LANE_COLUMNS,
    SILENT_HEARTBEATS,
    TRANSACTION_COLUMNS,
    Snapshot,
    left_at,
    longest_blocked,
    silence,
)
from outbox_core.status.verdict import LastStatus, State, Verdict, verdict
from outbox_core.text.duration import format_duration
from outbox_core.text.printable import printable
from outbox_core.text.wording import about, at_least, coarse_duration, duration, natural

if TYPE_CHECKING:
    from outbox_core.status.pauses import PauseState

LANE_HEADINGS = ("records/s", "in flight", "waiting", "purged")
"""What the first figures of a lane are; those of transactions follow, by their own names."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads."""

    name: str  # the process
    token: int  # of the fence
    since: datetime  # when it raised the token
    elector: str  # what elected it; empty if that is not known
    before: str  # how long before it the last heartbeat of the leader before was; empty if not known
    silent: bool  # whether none of its lanes has sent a heartbeat for too long
    left: datetime | None  # when it left in order, if it did: nobody leads since
    heartbeat: str  # when the last of its lanes sent one


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the table of lanes; texts, but for the number and whether it is silent."""

    number: int
    silent: bool
    heartbeat: str
    blocked: str
    epoch: int
    figures: tuple[str, ...]
    batches: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of an outbox in figures, as texts; an empty one where there is nothing to say."""

    records: int
    exact: bool
    backlog: str
    oldest: str
    withheld: str  # why there is no oldest one that waits to be sent, though there are records
    parked: str
    parked_keys: int
    parked_for: str
    rate: str
    per_second: float
    delivered: str
    blocked: str
    upkeep: str
    upkeep_is_old: bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """A row of the table of clusters: texts, and what is marked."""

    number: int
    role: Role
    records: str
    oldest: str
    taken_over: str
    takeover_since: datetime | None
    takeover_reason: str
    recent: bool
    orphans: bool


@dataclass(frozen=True, slots=True)
class Paused:
    """What is paused: texts, but for what forms and addresses name."""

    topic: str
    subject: str
    operator: str
    reason: str
    since: datetime
    until: datetime | None
    records: str
    open: str  # the lanes that have not answered yet; empty once it is in effect


@dataclass(frozen=True, slots=True)
class Status:
    """What is shown of one outbox."""

    title: str  # what users call it
    verdict: Verdict  # its state
    table: str
    seen: datetime | None  # when it was last seen; None if never
    age: str  # for how long its last known state has been out of date; empty if it is not
    figures: Figures | None
    leader: Leader | None
    processes: tuple[ProcessRow, ...]
    processes_unknown: str  # why nothing is known of them; empty if it is
    latency: Latency | None  # of the last minute; None if nothing was delivered
    topics: tuple[TopicRow, ...]  # of the last minute, and those that are paused
    lanes: tuple[Lane, ...]
    transactional: bool
    clusters: tuple[Cluster, ...] | None
    takes_over: str
    pauses: tuple[Paused, ...]


def status_of(title: str, known: LastStatus, now: datetime, *, steady: bool = False) -> Status:
    """Returns what is shown; ``steady``: ages advance in steps, so that it stays while nothing happens."""
    word = coarse_duration if steady else duration
    snapshot = known.snapshot
    away = known.away_since is not None
    age = format_duration(max(0, round((now - known.at).total_seconds()))) if away and known.at else ""
    clusters, seen = (snapshot.clusters, snapshot.processes) if snapshot else (None, None)
    return Status(
        title=title,
        verdict=verdict(known),
        table=snapshot.outbox if snapshot else "",
        seen=known.at,
        age=age,
        figures=_figures(snapshot, word, steady=steady) if snapshot else None,
        leader=_leader(snapshot, word, steady=steady) if snapshot else None,
        processes=tuple(process_row(each, word, steady=steady) for each in seen.known) if seen else (),
        processes_unknown=seen.error if seen else "",
        latency=latency_of(snapshot) if snapshot else None,
        topics=topic_rows(snapshot) if snapshot else (),
        lanes=tuple(_lane(snapshot, lane, word, steady=steady) for lane in snapshot.lanes)
        if snapshot
        else (),
        transactional=bool(snapshot and snapshot.transactional_lanes),
        clusters=None if clusters is None else tuple(_cluster(each, word) for each in clusters),
        takes_over=", ".join(map(str, taken_over_from(clusters or ()))),
        pauses=tuple(map(_paused, snapshot.pauses)) if snapshot else (),
    )


def worst_first(outboxes: Sequence[Status]) -> list[Status]:
    """Sorts outboxes by their state, those with most problems first; then by title, as people count."""
    order = list(State)
    return sorted(
        outboxes,
        key=lambda each: (
            order.index(each.verdict.state),
            -len(each.verdict.reasons),
            natural(each.title),
        ),
    )


def overall(outboxes: Sequence[Status]) -> Verdict:
    """Judges several outboxes at once."""
    if not outboxes:
        return Verdict(State.UNKNOWN, "This process harvests no outbox.", "No outbox")
    sick = [each for each in outboxes if each.verdict.state is not State.WELL]
    if not sick:
        return Verdict(State.WELL, f"All {len(outboxes)} outboxes are well.", "All is well")
    judged = [each for each in sick if each.verdict.state is not State.UNKNOWN]
    few = f"{len(judged or sick)} of {len(outboxes)}"
    if not judged:
        return Verdict(State.UNKNOWN, f"{few} outboxes have not been checked yet.", f"{few} not known yet")
    return Verdict(
        worst_first(judged)[0].verdict.state, f"{few} outboxes need attention.", f"{few} need attention"
    )


def _figures(snapshot: Snapshot, word: Word, *, steady: bool) -> Figures:
    backlog, upkeep = snapshot.backlog, snapshot.upkeep
    old = upkeep.snapshot is not None and is_old(upkeep.snapshot, Thresholds().snapshot)
    said = "" if upkeep.dead is None else dead_rows(upkeep)
    if said and upkeep.vacuumed is not None and not steady:
        said += f", {word(upkeep.vacuumed)} after a vacuum"
    if said and old and upkeep.snapshot is not None:
        said += f"; {kept(upkeep.snapshot)}"
    return Figures(
        records=backlog.records,
        exact=backlog.exact,
        backlog=about(backlog.records, exact=backlog.exact),
        oldest="" if backlog.oldest is None else word(backlog.oldest),
        withheld=_withheld(snapshot) if backlog.oldest is None and backlog.records else "",
        parked=f"{snapshot.parked.keys:,}",
        parked_keys=snapshot.parked.keys,
        parked_for="" if snapshot.parked.oldest is None else word(snapshot.parked.oldest),
        rate=f"{snapshot.total('purged_per_second'):,.0f}",
        per_second=snapshot.total("purged_per_second"),
        delivered=f"{snapshot.total('purged_total'):,.0f}",
        blocked=word(snapshot.blocked) if snapshot.blocked else "",
        upkeep=said,
        upkeep_is_old=old,
    )


def _withheld(snapshot: Snapshot) -> str:
    why = [*["parked"] * bool(snapshot.parked.keys), *["paused"] * bool(snapshot.pauses)]
    return f"all {' or '.join(why)}" if why else ""


def _leader(snapshot: Snapshot, word: Word, *, steady: bool) -> Leader | None:
    if not snapshot.lanes:
        return None
    lane = snapshot.lanes[0]
    before = lane.metrics.get("silence_before")
    return Leader(
        name=lane.holder,
        token=lane.fence.token,
        since=lane.since,
        elector=str(lane.metrics.get("elector") or ""),
        before="" if before is None else word(before),
        silent=all(snapshot.silent(each) for each in snapshot.lanes),
        left=left_at(snapshot.lanes),
        heartbeat=_heartbeat(snapshot, min(snapshot.lanes, key=silence), word, steady=steady),
    )


def _lane(snapshot: Snapshot, lane: LaneStatus, word: Word, *, steady: bool) -> Lane:
    metrics = snapshot.metrics(lane)
    figures = [f"{metrics[name]:,.0f}" if name in metrics else "-" for name in LANE_COLUMNS]
    if snapshot.transactional_lanes:
        figures += [f"{lane.metrics.get(name, 0):,.0f}" for name in TRANSACTION_COLUMNS]
    blocked = longest_blocked([lane])
    batches = metrics.get("batches")
    return Lane(
        number=lane.fence.lane,
        silent=snapshot.silent(lane),
        heartbeat=_heartbeat(snapshot, lane, word, steady=steady),
        blocked=word(blocked) if blocked else "",
        epoch=lane.fence.epoch,
        figures=tuple(figures),
        batches=None
        if batches is None
        else ", ".join(f"{each['stage']} {each['records']:,}" for each in batches) or "none",
    )


def _heartbeat(snapshot: Snapshot, lane: LaneStatus, word: Word, *, steady: bool) -> str:
    if lane.age is None:
        return "never"
    if snapshot.silent(lane):
        return word(lane.age)
    if not steady:
        return f"{word(lane.age)} ago"
    # In whole beats: otherwise it would change all the time, and tell nothing.
    beat = snapshot.longest_silence / SILENT_HEARTBEATS
    return f"within {word(max(1, ceil(lane.age / beat)) * beat)}"


def _paused(state: PauseState) -> Paused:
    pause = state.pause
    return Paused(
        topic=pause.topic,
        subject=printable(pause.subject),
        operator=printable(pause.operator),
        reason=printable(pause.reason),
        since=pause.since,
        until=pause.until,
        records=at_least(state.records, exact=state.exact),
        open=", ".join(map(str, state.open)),
    )


def _cluster(state: ClusterState, word: Word) -> Cluster:
    last = "" if state.seconds_ago is None else f", the last {word(state.seconds_ago)} ago"
    return Cluster(
        number=state.cluster,
        role=state.role,
        records=at_least(state.records, exact=state.exact),
        oldest="" if state.oldest is None else word(state.oldest),
        taken_over=f"{state.taken_over:,}{last}",
        takeover_since=state.takeover.since if state.takeover else None,
        takeover_reason=printable(state.takeover.reason) if state.takeover else "",
        recent=state.recent,
        orphans=state.orphaned,
    )
