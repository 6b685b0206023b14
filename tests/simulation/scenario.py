"""What a seed stands for, before anything has happened; and what a world is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil
from random import Random
from typing import Any

from outbox_api import MAX_CHECKPOINT, WHOLE
from outbox_api.election import LeaseWatch
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.recovery import Recovery, TakenOver, take_over
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.group import LaneGroup
from outbox_core.lanes.record_lane import AtLeastOnceLane
from outbox_core.lanes.restarts import Restarts
from outbox_core.leadership.candidacy import Candidacy
from outbox_core.settings import Delivery, Failures, Limits
from outbox_postgres.settled import Settled

from . import fencing, statements
from .advance import Advance
from .broker import Producer
from .coalescing import ReadOutline, Supersede
from .operator import Free
from .recovery import Settings
from .sender import TransactionalProducer
from .trail import TOPICS
from .transactions import TransactionalId

NARROW_SHARE = 0.5
"""Which part of the scenarios with transactions has but a few kinds of faults, and many of them."""

RECONFIGURED_SHARE = 0.4
"""In which part of them the place of checkpoints changes, and in half of these the table's name too."""
ANEW_SHARE = 0.3
"""In which part of those of exactly-once delivery ids of deleted rows are given out anew."""
TORN_SHARE = 0.2
"""In which part of those with transactions the broker tears many large ones."""
TORN: Mapping[str, Any] = {
    "keys": 8, "transactions_per_second": 100.0, "torn": 0.5, "blind": 0.0, "refused_for_good": 0.0,
}  # fmt: skip
TABLES = ("public.box", "public.renamed")
PLACES = ("here", "there")

PAUSED_SHARE = 0.25
"""In which part of all scenarios operators pause topics, or the outbox."""
SIZED_SHARE = 0.3
"""In which part of all scenarios values have sizes, which take time and room."""
SIZED: Mapping[str, Any] = {"sizes": (1, 300, 900, 2500), "byte_seconds": 1e-5}
SIZED_LIMITS: Mapping[str, Any] = {"max_lane_bytes": 4000}
CROWDED_SHARE = 0.05
"""In which part of those of one delivery one key is hot or many fail, and the others must flow."""
CROWDED: Mapping[str, Any] = {
    "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 4, "seconds": 8.0, "late_commits": 0.0,
    "rollbacks": 0.0, "refused": 0.0, "refused_for_good": 0.0, "fault_kinds": (), "lossy": 0.0, "slow": 0.0,
    "wall_clocks": False, "flow_seconds": 1.5, "sizes": (1,), "byte_seconds": 0.0,
    "limits": Limits(max_in_flight_records=8, send_buffer=16, mark_query_records=8, io_error_backoff=0.01),
    "pauses": (),
}  # fmt: skip
CALM: Mapping[str, Any] = {
    "touched": 0.0, "withdrawn": 0.0, "kept": 0.0, "ids_anew": False, "characters": MAX_CHECKPOINT,
    "torn": 0.0, "blind": 0.0, "unready": 0.0, "repeated": 0.0, "replaced": 0.0,
}  # fmt: skip
"""What else has others wait where there are transactions."""

NOT_CROWDED: Mapping[str, Any] = {"hot": 0.0, "front": 0, "flow_seconds": float("inf")}


class Mode(StrEnum):
    """What harvesters deliver: the one, the other, or each what it was started with; or queries of Spark."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"
    SWITCHING = "switching"
    SPARK = "spark"

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """What a harvester may be started with."""
        return (Delivery(self.value),) if self.value in {*Delivery} else tuple(Delivery)


def _never(_: int) -> bool:
    return False


@dataclass(frozen=True)
class Parts:
    """What a world is made of; a mutant puts something broken in the place of one of them.

    Attributes:
        is_dropped: Of which records, by their serials, nothing is published.
        patches: What else is replaced as long as a history runs: the name, with its module, and the value.
    """

    machine: type[MarkPurgeReset] = MarkPurgeReset
    lane: type[AtLeastOnceLane] = AtLeastOnceLane
    restarts: type[Restarts] = Restarts
    producer: type[Producer] = Producer
    settled: type[Settled] = Settled
    mark: type[statements.Mark] = statements.Mark
    purge: type[statements.Purge] = statements.Purge
    reset: type[statements.Reset] = statements.Reset
    park: type[statements.Park] = statements.Park
    bump: type[fencing.Bump] = fencing.Bump
    enter: type[fencing.Enter] = fencing.Enter
    free: type[Free] = Free
    batch_machine: type[SelectPublishPurge] = SelectPublishPurge
    batch_lane: type[ExactlyOnceLane] = ExactlyOnceLane
    batch_producer: type[TransactionalProducer] = TransactionalProducer
    transactional_id: type[TransactionalId] = TransactionalId
    advance: type[Advance] = Advance
    outline: type[ReadOutline] = ReadOutline
    supersede: type[Supersede] = Supersede
    write_note: type[fencing.WriteNote] = fencing.WriteNote
    recovery: type[Recovery] = Recovery
    take_over: Callable[..., TakenOver] = take_over
    group: type[LaneGroup] = LaneGroup
    candidacy: type[Candidacy] = Candidacy
    lease_watch: type[LeaseWatch] = LeaseWatch
    is_dropped: Callable[[int], bool] = _never
    patches: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """What a seed stands for, before anything has happened.

    Attributes:
        seconds: How long faults go on.
        fault_kinds: Which of them happen at all.
        faults_per_second: How many do.
        lossy: Which part of statements and records meets an error also when nobody plans it.
        slow: How long statements may pause when nobody plans it.
        slow_share: In how many of the places where they could.
        wall_clocks: Whether the election is the one that trusts wall clocks.
        leases: Whether a lease in the database says who leads, instead of a coordinator; drawn for ``None``.
        mode: What harvesters deliver.
        lane_seconds: After how long an idle lane of exactly-once delivery starts anew.
        tables: What the database may call the table, which is renamed between the starts of processes.
        places: Where configurations may have checkpoints kept.
        topics: How many topics records have.
        coalesced: Of which a backlog sends only the newest record of each key.
        pauses: What operators pause now and then: topics, or the whole outbox.
        sizes: How many bytes values may have.
        byte_seconds: How long a byte takes from the database to a lane.
        hot: Which part of all records is of one key.
        front: How many failing keys have a record in front of all others.
        touched: Which part of what applications stash goes with locks of rows that were stashed before.
        kept: Which part of the rows a trigger keeps, so that nobody can delete them.
        withdrawn: Which part of the rows that are locked so is deleted.
        ids_anew: Whether ids of deleted rows are given out anew.
        at_once: Whether one statement deletes and selects, as of one moment; else one after the other.
        dates: Whether selections tell when the rows were created.
        characters: How many a checkpoint may have.
        torn: Which part of all transactions the broker tears, as it crashes when it is asked to commit them.
        blind: Of which part of the records of an attempt the log does not tell.
        repeated: Which part of the requests to end a transaction is sent twice, so that one may arrive late.
        verifies: Whether the broker refuses records that are of no open transaction.
        replaced: Which part of the records of an attempt is gone that others of their key follow.
        unready: Which part of the first requests of producers to a partition is refused for the moment.
        flow_seconds: How long a record of another key may take from its commit until a reader sees it.
    """

    seconds: float
    processes: int
    lanes: tuple[int, ...]
    workers: tuple[int, ...]
    keys: int
    transactions_per_second: float
    late_commits: float
    rollbacks: float
    refused: float
    refused_for_good: float
    fault_kinds: tuple[str, ...]
    faults_per_second: float
    lossy: float
    slow: float
    wall_clocks: bool
    limits: Limits
    failures: Failures
    leases: bool | None = None
    slow_share: float = 0.5
    mode: Mode = Mode.AT_LEAST_ONCE
    lane_seconds: float = float("inf")
    tables: tuple[str, ...] = ("public.box",)
    places: tuple[str, ...] = ("here",)
    topics: int = 1
    coalesced: tuple[str, ...] = ()
    pauses: tuple[str, ...] = ()
    sizes: tuple[int, ...] = (1,)
    byte_seconds: float = 0.0
    hot: float = 0.0
    front: int = 0
    touched: float = 0.0
    withdrawn: float = 0.0
    kept: float = 0.0
    ids_anew: bool = False
    at_once: bool = True
    dates: bool = True
    characters: int = MAX_CHECKPOINT
    torn: float = 0.0
    blind: float = 0.0
    repeated: float = 0.0
    verifies: bool = True
    replaced: float = 0.0
    unready: float = 0.0
    flow_seconds: float = float("inf")
    _shares: dict[int, Limits] = field(default_factory=dict, compare=False, repr=False)

    @property
    def undisturbed(self) -> bool:
        """Whether nothing fails, and nothing is slow: leaders only hand over."""
        troubles = (
            self.lossy,
            self.slow,
            self.refused,
            self.refused_for_good,
            self.touched,
            self.kept,
            self.torn,
            self.repeated,
            self.unready,
        )
        return not any(troubles) and self.fault_kinds == ("handovers",) and not self.wall_clocks

    @property
    def most_keys(self) -> int:
        """How many keys there may be."""
        return self.keys + 1 + self.front

    @property
    def transacts(self) -> bool:
        """Whether any lane may publish in transactions."""
        return self.mode is not Mode.AT_LEAST_ONCE

    def settings(self, chance: Random) -> Settings:
        """Draws how a process is configured that starts now."""
        return Settings(chance.choice(self.tables), chance.choice(self.places))

    def limits_of_a_lane(self, lanes: int) -> Limits:
        """Returns the limits with one lane's share of what may be in flight."""
        if lanes not in self._shares:
            share = ceil(self.limits.max_in_flight_records / lanes)
            self._shares[lanes] = replace(self.limits, max_in_flight_records=share)
        return self._shares[lanes]


def draw(chance: Random, kinds: Iterable[str], mode: Mode) -> Scenario:
    """Draws a scenario whose faults are some of ``kinds``."""
    paused = _paused(chance) if mode is not Mode.SPARK else {}
    drawn = _draw_all(chance, kinds, mode)
    # Where something is to flow within a time, or leaders only hand over, nothing is paused.
    return drawn if drawn.undisturbed or drawn.flow_seconds < float("inf") else replace(drawn, **paused)


def _paused(chance: Random) -> Mapping[str, Any]:
    """Draws what operators pause; where that is a topic, there are two."""
    aside = Random()
    aside.setstate(chance.getstate())
    drawn = aside.choice(((WHOLE,), TOPICS[:1], (WHOLE, *TOPICS)))
    if aside.random() >= PAUSED_SHARE:
        return {}
    return {"pauses": drawn} if drawn == (WHOLE,) else {"pauses": drawn, "topics": len(TOPICS)}


def _draw_all(chance: Random, kinds: Iterable[str], mode: Mode) -> Scenario:
    kinds = tuple(kinds)
    drawn = replace(_draw(chance, kinds), coalesced=_coalesced(chance))
    if chance.random() < SIZED_SHARE:
        drawn = replace(drawn, **SIZED, limits=replace(drawn.limits, **SIZED_LIMITS))
    if mode is Mode.AT_LEAST_ONCE:
        crowded = chance.random() < CROWDED_SHARE
        if crowded:
            return _crowded(drawn, chance)
        return replace(drawn, **_hands_on_rows(chance), **_late_requests(chance, mode))
    limits = replace(drawn.limits, max_batch_records=chance.choice((1, 3, 8, 20)))
    drawn = replace(drawn, mode=mode, limits=limits, lane_seconds=chance.choice((2.0, float("inf"))))
    kept = _hands_on_rows(chance)["kept"]
    touched, withdrawn = chance.choice((0.0, 0.1, 0.5)), chance.choice((0.0, 0.0, 0.3))
    ids_anew = mode in (Mode.EXACTLY_ONCE, Mode.SPARK) and chance.random() < ANEW_SHARE
    dates = ids_anew or chance.random() < 0.7
    characters = chance.choice((MAX_CHECKPOINT, 200, 90))
    torn = chance.choice((0.0, 0.0, 0.05, 0.2, 0.5))
    # What is torn is not told by the fate of the checkpoint.
    blind = 0.0 if torn else chance.choice((0.0, 0.5))
    at_once = chance.random() < 0.7
    drawn = replace(drawn, touched=touched, withdrawn=withdrawn, kept=kept, ids_anew=ids_anew,
                    at_once=at_once, dates=dates, characters=characters, torn=torn, blind=blind,
                    **_late_requests(chance, mode))  # fmt: skip
    if chance.random() < RECONFIGURED_SHARE:
        tables = chance.choice((drawn.tables, TABLES))
        drawn = replace(drawn, tables=tables, places=PLACES)
    if chance.random() < NARROW_SHARE:
        drawn = _narrowed(drawn, chance, kinds)
    if chance.random() < TORN_SHARE:
        lanes = tuple(chance.choice((1, 1, 4)) for _ in drawn.lanes)
        limits = replace(drawn.limits, max_batch_records=20)
        drawn = replace(drawn, **TORN, lanes=lanes, limits=limits)
    if mode is Mode.EXACTLY_ONCE and chance.random() < CROWDED_SHARE:
        return replace(_crowded(drawn, chance), **CALM)
    return drawn


def _hands_on_rows(chance: Random) -> Mapping[str, Any]:
    """Draws how often applications lock rows and delete them, and triggers keep them."""
    aside = Random()
    aside.setstate(chance.getstate())  # all else that a seed stands for stays as it is
    return {
        "touched": aside.choice((0.0, 0.1, 0.5)),
        "withdrawn": aside.choice((0.0, 0.0, 0.3)),
        "kept": aside.choice((0.0, 0.0, 0.02, 0.1)),
    }


def _coalesced(chance: Random) -> tuple[str, ...]:
    """Draws which topics are coalesced."""
    aside = Random()
    aside.setstate(chance.getstate())
    return aside.choice(((), TOPICS, TOPICS[:1]))


def _late_requests(chance: Random, mode: Mode) -> Mapping[str, Any]:
    """Draws which requests are sent twice or repeated, what brokers make of that, and how many topics are.

    A reader of several topics sees transactions in no order, so there is one where there are any.
    """
    aside = Random()
    aside.setstate(chance.getstate())
    drawn = {
        "unready": aside.choice((0.0, 0.0, 0.5)),
        "repeated": aside.choice((0.0, 0.0, 0.05, 0.3)),
        "verifies": aside.random() < 0.7,
        "replaced": aside.choice((0.0, 0.3)),
    }
    if mode is Mode.AT_LEAST_ONCE:
        return {"unready": drawn["unready"], "topics": aside.choice((1, len(TOPICS)))}
    return drawn


def _crowded(drawn: Scenario, chance: Random) -> Scenario:
    """Has one key be hot, or many keys fail in front, and nothing else happen."""
    if chance.random() < 0.5:
        return replace(drawn, **CROWDED, hot=0.9, transactions_per_second=100.0)
    return replace(drawn, **CROWDED, front=chance.choice((50, 200, 400)), transactions_per_second=10.0)


def _narrowed(drawn: Scenario, chance: Random, kinds: Sequence[str]) -> Scenario:
    """Has few kinds of faults happen often in a small and busy world: some bugs show in no other."""
    few = chance.sample(kinds, min(len(kinds), chance.randint(1, 3)))
    return replace(
        drawn,
        processes=2,
        lanes=(chance.choice((1, 2, 4)), chance.choice((1, 2, 4))),
        workers=drawn.workers[:2],
        keys=min(drawn.keys, 4),
        transactions_per_second=40.0,
        fault_kinds=tuple(few),
        faults_per_second=5.0,
        lossy=0.0,
        slow=0.0,
        refused=0.0,
        refused_for_good=0.0,
    )


def _draw(chance: Random, kinds: Iterable[str]) -> Scenario:
    processes = chance.choice((2, 2, 3, 4))
    lanes = chance.choice((1, 1, 2, 3, 4))
    same = chance.random() < 0.6
    enabled = chance.choice((0.2, 0.5, 0.8))
    return Scenario(
        seconds=chance.choice((4.0, 8.0, 12.0)),
        processes=processes,
        lanes=tuple(lanes if same else chance.randint(1, 4) for _ in range(processes)),
        workers=tuple(chance.choice((0, 0, 1, 2, 4)) for _ in range(processes)),
        keys=chance.choice((1, 2, 4, 8, 16)),
        transactions_per_second=chance.choice((2.0, 10.0, 40.0, 100.0)),
        late_commits=chance.choice((0.0, 0.1, 0.4)),
        rollbacks=chance.choice((0.0, 0.05, 0.3)),
        refused=chance.choice((0.0, 0.0, 0.05, 0.2)),
        refused_for_good=chance.choice((0.0, 0.01, 0.05)),
        fault_kinds=tuple(kind for kind in kinds if chance.random() < enabled),
        faults_per_second=chance.choice((0.5, 2.0, 5.0)),
        lossy=chance.choice((0.0, 0.0, 0.02)),
        slow=chance.choice((0.0, 0.0, 0.01, 0.2)),
        wall_clocks=chance.random() < 0.3,
        limits=Limits(
            max_in_flight_records=chance.choice((1, 4, 8, 20)),
            send_buffer=chance.choice((0, 4, 20)),
            mark_query_records=chance.choice((1, 5, 20)),
            queue_timeout=chance.choice((1.0, 3.0, 30.0)),
            io_error_backoff=chance.choice((0.01, 0.1)),
            max_run_records=chance.choice((1, 2, 5, 1000)),
        ),
        failures=Failures(
            first_backoff=chance.choice((0.01, 0.05)),
            longest_backoff=0.4,
            park_after=chance.choice((1, 2, 3)),
            park_retryable_after=chance.choice((None, None, 3)),
            most_parked_keys=chance.choice((1, 100, 100)),
        ),
    )
