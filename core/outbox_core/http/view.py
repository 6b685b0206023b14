"""What the page shows of outboxes, as plain values: from what is known of them, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import urlencode

from outbox_sdk.fence import LaneStatus
from outbox_sdk.parking import DeadLetter

from outbox_core.clusters import ClusterState, taken_over_from
from outbox_core.config import KeyNames
from outbox_core.config.duration import format_duration
from outbox_core.dead_rows import dead_rows, is_old, kept
from outbox_core.health import REMARKS, Code, HealthProblem, Thresholds, problems
from outbox_core.snapshot import LANE_COLUMNS, TRANSACTION_COLUMNS, Snapshot, longest_blocked


class State(StrEnum):
    """The state of an outbox, in one word; the worst first."""

    AWAY = "away"
    UNKNOWN = "unknown"
    PROBLEMS = "problems"
    WELL = "well"


@dataclass(frozen=True, slots=True)
class Known:
    """What this process knows of an outbox.

    Attributes:
        snapshot: Its last known state; ``None`` if it was never seen.
        at: When that was; ``None`` if never.
        error: Why it cannot be seen now; empty if it can.
        away_since: Since when it cannot be seen; ``None`` if it can.
    """

    snapshot: Snapshot | None = None
    at: datetime | None = None
    error: str = ""
    away_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is wrong, or worth knowing.

    Attributes:
        code: What it is, for programs.
        text: What it is, in one sentence.
        href: Where its cure is.
        cure: What is there.
    """

    code: str
    text: str
    href: str
    cure: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of an outbox in one sentence.

    Attributes:
        state: In one word.
        said: The sentence. It has no figures that change all the time, as it is read aloud when it changes.
        short: The same in few words, for titles.
        reasons: What is wrong.
        remarks: What is as somebody wants it, and worth knowing nevertheless.
    """

    state: State
    said: str
    short: str
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[Reason, ...] = ()


_CURES = {
    Code.PARKED_KEYS: ("#parked", "the parked keys"),
    Code.DELIBERATE_TAKEOVER: ("#clusters", "the clusters"),
}


def verdict(known: Known) -> Verdict:
    """Judges what is known of an outbox."""
    if known.snapshot is None or known.away_since is not None:
        if known.away_since is None:
            return Verdict(State.UNKNOWN, "Not looked at yet.", "Not known yet")
        said = f"The database has not answered since {clock(known.away_since)}."
        reason = _reason(HealthProblem(Code.DATABASE_UNREACHABLE, known.error))
        return Verdict(State.AWAY, said, "Database away", (reason,))
    found = problems(known.snapshot)
    wrong = tuple(_reason(each) for each in found if each.code not in REMARKS)
    remarks = tuple(_reason(each) for each in found if each.code in REMARKS)
    if not wrong:
        return Verdict(State.WELL, "All is well.", "All is well", (), remarks)
    count = "1 problem" if len(wrong) == 1 else f"{len(wrong)} problems"
    names = ", ".join(dict.fromkeys(each.code.replace("-", " ") for each in wrong))
    return Verdict(State.PROBLEMS, f"{count}: {names}.", count, wrong, remarks)


def _reason(problem: HealthProblem) -> Reason:
    href, cure = _CURES.get(problem.code, (f"/help#{problem.code}", "what to do"))
    return Reason(str(problem.code), problem.message, href, cure)


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads.

    Attributes:
        name: The process.
        token: Of the fence.
        since: When it raised the token.
        elector: What elected it; empty if that is not known.
        before: For how long nobody was heard before it; empty if that is not known.
        silent: Whether none of its lanes has been heard for too long.
    """

    name: str
    token: int
    since: datetime
    elector: str
    before: str
    silent: bool


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
    """The state of an outbox in figures, as texts."""

    records: int
    backlog: str
    oldest: str
    parked: str
    rate: str
    blocked: str
    upkeep: str
    upkeep_is_old: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of one outbox.

    Attributes:
        title: What users call it.
        href: Its page.
        query: Names it in other addresses.
        verdict: Its state.
        age: For how long its last known state has been out of date; empty if it is not.
        seen: When it was last seen; ``None`` if never.
    """

    title: str
    href: str
    query: str
    verdict: Verdict
    table: str
    seen: datetime | None
    age: str
    figures: Figures | None
    leader: Leader | None
    lanes: tuple[Lane, ...]
    transactional: bool
    clusters: Sequence[ClusterState] | None
    takes_over: str


def shown(title: str, known: Known, now: datetime) -> Shown:
    """Returns what is shown of an outbox."""
    snapshot = known.snapshot
    away = known.away_since is not None
    age = format_duration(max(0, round((now - known.at).total_seconds()))) if away and known.at else ""
    clusters = snapshot.clusters if snapshot else None
    return Shown(
        title=title,
        href=f"/outbox?{urlencode({'name': title})}",
        query=urlencode({"outbox": title}),
        verdict=verdict(known),
        table=snapshot.outbox if snapshot else "",
        seen=known.at,
        age=age,
        figures=_figures(snapshot) if snapshot else None,
        leader=_leader(snapshot) if snapshot else None,
        lanes=tuple(_lane(snapshot, lane) for lane in snapshot.lanes) if snapshot else (),
        transactional=bool(snapshot and snapshot.transactional_lanes),
        clusters=clusters,
        takes_over=", ".join(map(str, taken_over_from(clusters or ()))),
    )


def worst_first(outboxes: Sequence[Shown]) -> list[Shown]:
    """Sorts outboxes by their state, those with most problems first; then by title."""
    order = list(State)
    return sorted(
        outboxes, key=lambda each: (order.index(each.verdict.state), -len(each.verdict.reasons), each.title)
    )


def overall(outboxes: Sequence[Shown]) -> Verdict:
    """Judges several outboxes at once."""
    if not outboxes:
        return Verdict(State.UNKNOWN, "This process harvests no outbox.", "No outbox")
    sick = [each for each in outboxes if each.verdict.state is not State.WELL]
    if not sick:
        return Verdict(State.WELL, f"All {len(outboxes)} outboxes are well.", "All is well")
    few = f"{len(sick)} of {len(outboxes)}"
    worst = worst_first(sick)[0].verdict.state
    return Verdict(worst, f"{few} outboxes need attention.", f"{few} need attention")


def _figures(snapshot: Snapshot) -> Figures:
    backlog, upkeep = snapshot.backlog, snapshot.upkeep
    old = upkeep.snapshot is not None and is_old(upkeep.snapshot, Thresholds().snapshot)
    said = "" if upkeep.dead is None else dead_rows(upkeep)
    if said and old and upkeep.snapshot is not None:
        said += f"; {kept(upkeep.snapshot)}"
    return Figures(
        records=backlog.records,
        backlog=f"{'' if backlog.exact else 'about '}{backlog.records:,}",
        oldest="" if backlog.oldest is None else duration(backlog.oldest),
        parked=f"{snapshot.parked.keys:,}",
        rate=f"{snapshot.total('purged_per_second'):,.0f}",
        blocked=duration(snapshot.blocked) if snapshot.blocked else "",
        upkeep=said,
        upkeep_is_old=old,
    )


def _leader(snapshot: Snapshot) -> Leader | None:
    if not snapshot.lanes:
        return None
    lane = snapshot.lanes[0]
    before = lane.metrics.get("silence_before")
    return Leader(
        name=lane.holder,
        token=lane.fence.token,
        since=lane.since,
        elector=str(lane.metrics.get("elector") or ""),
        before="" if before is None else duration(before),
        silent=all(snapshot.silent(each) for each in snapshot.lanes),
    )


def _lane(snapshot: Snapshot, lane: LaneStatus) -> Lane:
    metrics = snapshot.metrics(lane)
    names = (*LANE_COLUMNS, *(TRANSACTION_COLUMNS if snapshot.transactional_lanes else ()))
    blocked = longest_blocked([lane])
    batches = metrics.get("batches")
    return Lane(
        number=lane.fence.lane,
        silent=snapshot.silent(lane),
        heartbeat="never" if lane.age is None else duration(lane.age),
        blocked=duration(blocked) if blocked else "",
        epoch=lane.fence.epoch,
        figures=tuple(f"{metrics[name]:,.0f}" if name in metrics else "–" for name in names),  # noqa: RUF001 - a dash
        batches=None
        if batches is None
        else ", ".join(f"{each['stage']} {each['records']:,}" for each in batches) or "none",
    )


@dataclass(frozen=True, slots=True)
class Letter:
    """What is shown of a dead letter in lists.

    Attributes:
        id: Identifies it.
        key: The record's key.
        in_logs: What log lines call the key; empty if that is the key itself.
        reused: Whether the outbox has given out the record's id anew.
    """

    id: int
    key: str
    in_logs: str
    topic: str
    attempts: str
    age: str
    since: datetime
    reason: str
    status: str
    reused: bool


def letter(found: DeadLetter, names: KeyNames) -> Letter:
    """Returns what is shown of a dead letter in lists."""
    record = found.record
    return Letter(
        id=record.id,
        key=printable(record.key),
        in_logs=names.of(record.key) if names.hashed else "",
        topic=printable(record.topic),
        attempts=f"{found.attempts:,}",
        age=duration(found.age),
        since=found.since,
        reason=printable(found.reason),
        status=str(found.status),
        reused=record.id < 0,
    )


def printable(text: str) -> str:
    """Escapes what does not print: it could hide, or turn round, what stands beside it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def duration(seconds: float) -> str:
    """Returns a duration for people; none is negative, whatever the clocks say."""
    return format_duration(max(0.0, round(seconds, 1)))


def clock(at: datetime) -> str:
    """Returns the time of day, in the time zone of this process."""
    return at.astimezone().strftime("%H:%M:%S")


def date_and_clock(at: datetime) -> str:
    """Returns date and time of day, in the time zone of this process."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
