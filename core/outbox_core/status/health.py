"""Whether an outbox is harvested without problems: one check of its database and its broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

from outbox_api import Dialect, DriverError
from outbox_api.seams.fence import LaneStatus
from outbox_api.seams.outbox_view import Backlog, Upkeep
from outbox_api.seams.parking import Parked

from outbox_core.settings import HarvestSettings
from outbox_core.status.snapshot import (
    SILENT_HEARTBEATS,
    Snapshot,
    intakes,
    left_at,
    longest_blocked,
    silence,
)
from outbox_core.text.duration import format_duration
from outbox_core.text.printable import printable

if TYPE_CHECKING:
    from outbox_core.status.clusters import ClusterState
    from outbox_core.status.pauses import PauseState


class Code(StrEnum):
    """The problems; programs may rely on these names."""

    NO_LEADER = "no-leader"
    SILENT_LANE = "silent-lane"
    OLD_RECORDS = "old-records"
    INTAKE = "intake"
    BLOCKED_KEY = "blocked-key"
    PARKED_KEYS = "parked-keys"
    TAKEN_OVER = "taken-over"
    ORPHANS = "orphans"
    DELIBERATE_TAKEOVER = "deliberate-takeover"
    LONG_PAUSE = "long-pause"
    PAUSED = "paused"
    OLD_SNAPSHOT = "old-snapshot"
    DEAD_ROWS = "dead-rows"
    OVERDUE = "overdue"
    DATABASE_UNREACHABLE = "database-unreachable"
    DATABASE_REFUSES = "database-refuses"
    BROKER_UNREACHABLE = "broker-unreachable"
    BROKER_REFUSES = "broker-refuses"


UNREACHABLE = frozenset({Code.DATABASE_UNREACHABLE, Code.BROKER_UNREACHABLE})
"""Problems that end once a service is back, and that may hide others."""


UNANSWERED_SECONDS = 10.0
"""For how long nothing may be acknowledged to a lane that has sent something."""

REMARKS = frozenset({Code.DELIBERATE_TAKEOVER, Code.PAUSED})
"""What is no problem, and said beside problems."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits beyond which something is a problem."""

    oldest: float = 60.0  # age of the oldest record in the outbox whose key is not parked, in seconds
    blocked: float = 60.0  # seconds since the first failure of a key that has not been delivered since
    parked: int = 0  # parked keys
    silence: float = SILENT_HEARTBEATS  # heartbeats that a lane may miss
    patience: float = 5.0  # seconds to wait for database and broker, both at once
    dead: int = 100_000
    """Dead rows that may wait for an old snapshot; ten times as many may wait whatever the reason."""
    snapshot: float = 60.0  # seconds for which a snapshot may be kept while dead rows wait
    paused: float = 3600.0  # seconds for which a pause may last that does not end by itself


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """One thing that is not as it should be."""

    code: Code  # what it is, for programs
    message: str  # what it is, in one sentence, free of secrets
    number: float | None = None
    """The figure that is compared with a threshold: seconds, or keys for parked ones, or records of other
    clusters; ``None`` where there is nothing to measure."""


@dataclass(frozen=True, slots=True)
class Health:
    """What an examination found."""

    problems: tuple[HealthProblem, ...] = ()  # in the order of :class:`Code`; none when all is well
    remarks: tuple[HealthProblem, ...] = ()
    """What is as somebody wants it, and worth knowing nevertheless; no reason for an alarm."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def reachable(self) -> bool:
        """Whether database and broker both answered."""
        return not any(problem.code in UNREACHABLE for problem in self.problems)


def examine(settings: HarvestSettings, thresholds: Thresholds | None = None) -> Health:
    """Looks at the fence, the outbox, the parked keys and the broker.

    Returns within ``thresholds.patience`` seconds, about. What hangs is left behind on a thread that ends
    with its driver's own patience, or with the process. Whatever is wrong with the services is a trouble
    and not an error.
    """
    thresholds = thresholds or Thresholds()
    dialect, publisher = settings.dialect.create(), settings.publisher.create()

    def broker() -> Sequence[HealthProblem]:
        publisher.prepare((), partitions=1)  # with no topics to create it only makes sure of the broker
        return ()

    deadline = monotonic() + thresholds.patience
    looks = (
        _Examination(
            lambda: _database(dialect, settings, thresholds), Code.DATABASE_UNREACHABLE, Code.DATABASE_REFUSES
        ),
        _Examination(broker, Code.BROKER_UNREACHABLE, Code.BROKER_REFUSES),
    )
    found = [problem for look in looks for problem in look.problems(deadline, thresholds.patience)]
    order = list(Code)
    found.sort(key=lambda problem: order.index(problem.code))
    return Health(
        tuple(each for each in found if each.code not in REMARKS),
        tuple(each for each in found if each.code in REMARKS),
    )


class _Examination:
    """One look at a service, on a thread of its own: what hangs there must not hang the examination."""

    def __init__(self, look: Callable[[], Sequence[HealthProblem]], unreachable: Code, refuses: Code) -> None:
        self._look = look
        self._unreachable = unreachable
        self._refuses = refuses
        self._outcome: SimpleQueue[Sequence[HealthProblem] | Exception] = SimpleQueue()
        Thread(target=self._run, name="health", daemon=True).start()

    def problems(self, deadline: float, patience: float) -> Sequence[HealthProblem]:
        """Returns what the look found, or that it has found nothing by the deadline."""
        try:
            outcome = self._outcome.get(timeout=max(0.0, deadline - monotonic()))
        except Empty:
            service = self._unreachable.partition("-")[0]
            message = f"the {service} has not answered for {format_duration(patience)}"
            return [HealthProblem(self._unreachable, message, patience)]
        if isinstance(outcome, DriverError):
            return [HealthProblem(self._unreachable if outcome.retryable else self._refuses, str(outcome))]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _run(self) -> None:
        try:
            self._outcome.put(self._look())
        except Exception as error:  # noqa: BLE001 - told or raised on the thread that waits
            self._outcome.put(error)


def problems(snapshot: Snapshot, thresholds: Thresholds | None = None) -> list[HealthProblem]:
    """Returns what is wrong according to the database, remarks included, in the order of :class:`Code`."""
    limits = thresholds or Thresholds()
    speaking = [lane for lane in snapshot.lanes if not snapshot.silent(lane)]
    return [
        *_leader(snapshot.lanes, speaking),
        *_oldest(snapshot.backlog, limits.oldest),
        *_intakes(speaking, limits.oldest),
        *_blocked(speaking, limits.blocked),
        *_unanswered(speaking),
        *_parked(snapshot.parked, limits.parked),
        *_dead_rows(snapshot.upkeep, limits),
        *(
            HealthProblem(Code.OVERDUE, str(lane.metrics["overdue"]))
            for lane in speaking
            if "overdue" in lane.metrics
        ),
        *(problem for cluster in snapshot.clusters or () for problem in _cluster(cluster)),
        *sorted((_pause(each, limits.paused) for each in snapshot.pauses), key=lambda each: each.code),
    ]


def _database(dialect: Dialect, settings: HarvestSettings, thresholds: Thresholds) -> list[HealthProblem]:
    with closing(dialect.watch()) as view:
        snapshot = Snapshot.take(view, settings, thresholds.silence, briefly=True)
    return problems(snapshot, thresholds)


def _leader(lanes: Sequence[LaneStatus], speaking: Sequence[LaneStatus]) -> list[HealthProblem]:
    if not lanes:
        return [HealthProblem(Code.NO_LEADER, "nobody has ever led: no harvester has been started")]
    if not speaking:
        least, last = min(silence(lane) for lane in lanes), lanes[0].holder
        said = f"no lane has sent a heartbeat for {format_duration(least)}: nobody leads"
        said = f"{said}; the last who did was {last}"
        if left_at(lanes):
            said = f"nobody leads: the last who did, {last}, left {format_duration(least)} ago"
        return [HealthProblem(Code.NO_LEADER, said, least)]
    silent = [lane for lane in lanes if lane not in speaking]
    if not silent:
        return []
    most = max(silence(lane) for lane in silent)
    which = ", ".join(str(lane.fence.lane) for lane in silent)
    said = f"{len(silent)} of {len(lanes)} lanes ({which}) have sent no heartbeat for up to"
    return [HealthProblem(Code.SILENT_LANE, f"{said} {format_duration(most)}", most)]


def _oldest(backlog: Backlog, limit: float) -> list[HealthProblem]:
    if backlog.oldest is None or backlog.oldest <= limit:
        return []
    said = f"the oldest record is {format_duration(backlog.oldest)} old, more than {format_duration(limit)}"
    return [HealthProblem(Code.OLD_RECORDS, said, backlog.oldest)]


def _intakes(speaking: Sequence[LaneStatus], limit: float) -> list[HealthProblem]:
    found = []
    for each in intakes(speaking):
        reason = f": {each['reason']}" if each["reason"] else ""
        if each["held"] and each["held_for"] > limit:
            keys = "1 key waits" if each["held"] == 1 else f"{each['held']:,} keys wait"
            said = (
                f"in table {each['table']} {keys}, the first for {format_duration(each['held_for'])}{reason}"
            )
            found.append(HealthProblem(Code.INTAKE, said, each["held_for"]))
        elif each["stuck"] > limit:
            for_long = format_duration(each["stuck"])
            said = (
                f"no row of table {each['table']} has been taken in for {for_long}, though some wait{reason}"
            )
            found.append(HealthProblem(Code.INTAKE, said, each["stuck"]))
    return found


def _blocked(speaking: Sequence[LaneStatus], limit: float) -> list[HealthProblem]:
    blocked = longest_blocked(speaking)
    if topics := max((int(lane.metrics.get("held_topics", 0)) for lane in speaking), default=0):
        said = f"{topics} topics fail as a whole; their records wait: see the log of the leader"
        return [HealthProblem(Code.BLOCKED_KEY, said, blocked)]
    if blocked <= limit:
        return []
    said = f"a key has been failing for {format_duration(blocked)}, more than {format_duration(limit)}"
    first = max(speaking, key=lambda lane: longest_blocked([lane]))
    said += f": {first.metrics['blocked_by']}" if "blocked_by" in first.metrics else ""
    return [HealthProblem(Code.BLOCKED_KEY, said, blocked)]


def _unanswered(speaking: Sequence[LaneStatus]) -> Iterator[HealthProblem]:
    """Tells of the broker what lanes say: whoever asks may reach another one, or reach it by another way."""
    told = [lane.metrics["unanswered"] for lane in speaking if "unanswered" in lane.metrics]
    seconds, reason = max(((each["seconds"], each["reason"]) for each in told), default=(0.0, ""))
    if seconds > UNANSWERED_SECONDS:
        since = format_duration(round(seconds))
        said = f"the broker has acknowledged nothing to the leader for {since}: {reason}"
        yield HealthProblem(Code.BROKER_UNREACHABLE, said, seconds)


def _parked(parked: Parked, limit: int) -> list[HealthProblem]:
    if parked.keys <= limit:
        return []
    keys = "1 key is parked" if parked.keys == 1 else f"{parked.keys:,} keys are parked"
    since = "" if parked.oldest is None else f", the first for {format_duration(max(0.0, parked.oldest))}"
    return [HealthProblem(Code.PARKED_KEYS, f"{keys}{since}: 'outbox parked list' says why", parked.keys)]


def _pause(state: PauseState, limit: float) -> HealthProblem:
    long = state.forgotten is not None and state.forgotten > limit
    topic = f" --topic {printable(state.pause.topic)}" if state.pause.topic else ""
    said = f"{state.said()}; 'outbox resume{topic}' ends it"
    return HealthProblem(Code.LONG_PAUSE if long else Code.PAUSED, said, state.pause.lasted)


def _dead_rows(upkeep: Upkeep, thresholds: Thresholds) -> list[HealthProblem]:
    if upkeep.dead is None or upkeep.dead <= thresholds.dead:
        return []
    from outbox_core.status.dead_rows import MANY, dead_rows, is_old, kept  # noqa: PLC0415 - few probes find them

    snapshot = upkeep.snapshot
    if snapshot is not None and is_old(snapshot, thresholds.snapshot):
        said = f"{dead_rows(upkeep)} cannot be removed: {kept(snapshot)}"
        return [HealthProblem(Code.OLD_SNAPSHOT, said, snapshot.seconds)]
    if upkeep.dead <= MANY * thresholds.dead:
        return []
    said = f"{dead_rows(upkeep)} wait to be removed, more than {MANY * thresholds.dead:,}"
    return [HealthProblem(Code.DEAD_ROWS, said, upkeep.dead)]


def _cluster(state: ClusterState) -> list[HealthProblem]:
    about, found = f"cluster {state.cluster}", []
    if state.takeover is not None:
        reason = f" ({state.takeover.reason})" if state.takeover.reason else ""
        said = f"{about}'s records are taken over deliberately{reason}: {state.taken_over:,} until now"
        end = f"'outbox takeover --end {state.cluster}' ends it"
        found.append(HealthProblem(Code.DELIBERATE_TAKEOVER, f"{said}; {end}", state.taken_over))
    elif state.recent:
        last = format_duration(round(state.seconds_ago or 0.0))
        said = f"{about}'s records are taken over by this cluster: {state.taken_over:,}, the last {last} ago"
        found.append(HealthProblem(Code.TAKEN_OVER, f"{said}; {about} may be lost", state.taken_over))
    if state.orphaned:
        more = "" if state.exact else " or more"
        said = f"{state.records:,}{more} records are of {about}, which nobody serves: its number is not known"
        found.append(HealthProblem(Code.ORPHANS, said, state.records))
    return found
