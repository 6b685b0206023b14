"""An outbox, a dialect and plugins in memory, with as much of their contracts as core's decisions need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

from outbox_api import (
    Backlog,
    ColumnIs,
    DeadLetter,
    DeadLetterStatus,
    DriverError,
    Fence,
    LaneStatus,
    LeadershipLost,
    MarkedRecord,
    Origin,
    OriginBacklog,
    Parked,
    Pause,
    Record,
    Seam,
    Takeover,
    TransactionalLane,
    Upkeep,
)
from outbox_api.portable.erasing import Live
from outbox_api.portable.outboxes import MemberRow
from outbox_api.seams.journal import ALL_ENTRIES, Action, ChosenEntries, Entry
from outbox_api.seams.parking import listed
from outbox_core.settings import Choice

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EMPTY = Backlog(0, exact=True, oldest=None)
NONE_PARKED = Parked(0, None)
NOTHING_KNOWN = Upkeep()


class FakeTable:
    """An outbox table: its fence, and what status asks of it.

    Attributes:
        token: The fence token.
        held: What the fence says of each lane.
        notes: Lane → its note about transactions.
        asked: How often its identity was asked for.
        taken_over: The deliberate takeovers, by cluster.
        paused: The pauses, by topic.
        present: The rows of members.
        rows: What is in the outbox.
        closed: Whether it was closed.
    """

    name = "public.outbox"

    def __init__(
        self,
        *,
        held: Sequence[LaneStatus] = (),
        backlog: Backlog = EMPTY,
        parked: Parked = NONE_PARKED,
        identity: str = "0123456789ab",
        origins: Sequence[OriginBacklog] = (),
        upkeep: Upkeep = NOTHING_KNOWN,
    ) -> None:
        self.token = 0
        self.held = held
        self.notes: dict[int, TransactionalLane] = {}
        self.asked = 0
        self.taken_over: dict[int, Takeover] = {}
        self.paused: dict[str, Pause] = {}
        self.present: list[MemberRow] = []
        self.rows: list[MarkedRecord] = []
        self.closed = False
        self._origins = origins
        self._backlog = backlog
        self._parked = parked
        self._identity = identity
        self._upkeep = upkeep

    def identity(self) -> str:
        self.asked += 1
        return self._identity

    def lane_statuses(self) -> Sequence[LaneStatus]:
        return self.held

    def members(self) -> Sequence[MemberRow]:
        return self.present

    def peek(self, after: int, limit: int) -> list[MarkedRecord]:
        return [row for row in self.rows if row.id > after][:limit]

    def backlog(self, paused: Collection[str] = ()) -> Backlog:
        return self._backlog

    def origins(self) -> Sequence[OriginBacklog]:
        return self._origins

    def takeovers(self) -> Sequence[Takeover]:
        return [self.taken_over[cluster] for cluster in sorted(self.taken_over)]

    def begin_takeover(self, cluster: int, reason: str) -> bool:
        began = cluster not in self.taken_over
        self.taken_over.setdefault(cluster, Takeover(cluster, reason, NOW))
        return began

    def end_takeover(self, cluster: int) -> bool:
        return self.taken_over.pop(cluster, None) is not None

    def pauses(self) -> Sequence[Pause]:
        return [self.paused[topic] for topic in sorted(self.paused)]

    def pause(self, topic: str, operator: str, reason: str, seconds: float | None = None) -> Pause:
        until = None if seconds is None else NOW + timedelta(seconds=seconds)
        self.paused[topic] = Pause(topic, operator, reason, NOW, until)
        return self.paused[topic]

    def resume(self, topic: str) -> Pause | None:
        return self.paused.pop(topic, None)

    def waiting(self) -> Mapping[str, int]:
        return {"orders": 3, "bills": 2}

    def now(self) -> datetime:
        return NOW

    def parked(self) -> Parked:
        return self._parked

    def upkeep(self) -> Upkeep:
        return self._upkeep

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        if expected not in {None, self.token}:
            raise LeadershipLost(f"token {expected} is no longer in force")
        self.token += 1
        return self.token

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        if token != self.token:
            raise LeadershipLost("another process leads")
        return Fence(lane, lanes, token, 1)

    def transactional_lanes(self) -> dict[int, TransactionalLane]:
        return dict(self.notes)

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        if noted is None:
            del self.notes[fence.lane]
        else:
            self.notes[fence.lane] = noted

    def close(self) -> None:
        self.closed = True


def _listed(record: MarkedRecord) -> MarkedRecord:
    return listed(record._replace(value=None, headers=[]))


class FakeLetters:
    """Dead letters in a list, which records its calls.

    Attributes:
        kept: The letters.
        asked: Verb and ids of each call that changes something.
        gone: Ids of letters that somebody else changes first.
        closed: Whether it was closed.
    """

    def __init__(self, *letters: DeadLetter) -> None:
        self.kept = list(letters)
        self.asked: list[tuple[str, list[int]]] = []
        self.gone: set[int] = set()
        self.closed = False

    def find(
        self,
        keys: Sequence[str] = (),
        status: DeadLetterStatus | None = None,
        *,
        ids: Collection[int] | None = None,
        whole: bool = True,
    ) -> list[DeadLetter]:
        return [
            each if whole else replace(each, record=_listed(each.record))
            for each in self.kept
            if (not keys or each.record.key in keys) and status in {None, each.status}
            if ids is None or each.record.id in ids
        ]

    def waiting(self, key: str) -> int:
        return 3

    def _change(self, verb: str, ids: Sequence[int]) -> list[int]:
        self.asked.append((verb, list(ids)))
        return [number for number in ids if number not in self.gone]

    def retry(self, ids: Sequence[int]) -> list[int]:
        return self._change("retry", ids)

    def skip(self, ids: Sequence[int]) -> list[int]:
        return self._change("skip", ids)

    def redrive(self, ids: Sequence[int]) -> list[int]:
        return self._change("redrive", ids)

    def close(self) -> None:
        self.closed = True


class FakeJournal:
    """A journal in a dictionary.

    Attributes:
        noted: What it holds, by id, in the order of the beginnings.
        begins_with: The error that the next beginnings end with.
        ends_with: The errors that the next ends have, one each.
        closed: Whether it was closed.
    """

    def __init__(self) -> None:
        self.noted: dict[UUID, Entry] = {}
        self.begins_with: DriverError | None = None
        self.ends_with: list[DriverError] = []
        self.closed = False

    def user(self) -> str:
        return ""

    def begin(self, action: Action) -> UUID:
        if self.begins_with:
            raise self.begins_with
        entry = Entry(uuid4(), NOW + timedelta(seconds=len(self.noted)), action, None)
        self.noted[entry.id] = entry
        return entry.id

    def end(self, entry: UUID, outcome: str) -> None:
        if self.ends_with:
            raise self.ends_with.pop(0)
        self.noted[entry] = replace(self.noted[entry], outcome=outcome)

    def entries(self, limit: int = 100, chosen: ChosenEntries = ALL_ENTRIES) -> Sequence[Entry]:
        found = [each for each in self.noted.values() if chosen.verb in {"", each.action.verb}]
        return found[::-1][:limit]

    def close(self) -> None:
        self.closed = True


class FakeErasing:
    """What is left of a key, in memory.

    Attributes:
        kept: How many records are kept.
        waiting: How many rows wait.
        parked: How many are parked.
        texts: The journal's texts.
        stashed: The tombstones.
        closed: Whether it was closed.
    """

    def __init__(self) -> None:
        self.kept, self.waiting, self.parked, self.closed = 1500, 3, 0, False
        self.texts: list[str] = []
        self.stashed: list[Record] = []

    def now(self) -> datetime:
        return NOW

    def live(self, key: str) -> Live:
        return Live(self.waiting, self.parked)

    def erase_kept(self, key: str, limit: int) -> Iterator[int]:
        while done := min(limit, self.kept):
            self.kept -= done
            yield done

    def erase_skipped(self, key: str, limit: int) -> int:
        return 0

    def erase_quotes(self, erased: Callable[[str], str]) -> Iterator[int]:
        former, self.texts = self.texts, [erased(text) for text in self.texts]
        yield sum(new != old for new, old in zip(self.texts, former, strict=True))

    def stash(self, record: Record) -> None:
        self.stashed.append(record)

    def close(self) -> None:
        self.closed = True


class FakeDialect:
    """A dialect that connects to one table, or raises one error after the other; the last one stays.

    Attributes:
        table: The table.
        letters: Its dead letters.
        kept: Its journal.
        left: What is left of a key.
        asked: How often it was asked to connect.
    """

    def __init__(
        self,
        table: FakeTable | None = None,
        errors: Sequence[Exception] = (),
        letters: FakeLetters | None = None,
        kept: FakeJournal | None = None,
    ) -> None:
        self.table = table or FakeTable()
        self.letters = letters or FakeLetters()
        self.kept = kept or FakeJournal()
        self.left = FakeErasing()
        self.asked = 0
        self._errors = list(errors)

    def longest_call(self) -> float:
        return 300.0

    def connect(self, eligible: Sequence[ColumnIs] = ()) -> FakeTable:
        self.asked += 1
        if self._errors:
            raise self._errors.pop(0) if len(self._errors) > 1 else self._errors[0]
        return self.table

    def watch(self) -> FakeTable:
        return self.connect()

    def dead_letters(self, *, read_only: bool = False) -> FakeLetters:
        return self.letters

    def journal(self, *, read_only: bool = False) -> FakeJournal:
        return self.kept

    def erasing(self) -> FakeErasing:
        return self.left


class FakePlugin:
    """An affinity that excludes no row, and a publisher that never publishes."""

    def eligible(self, taken_over: Collection[int] = ()) -> Sequence[ColumnIs]:
        return ()

    def origin(self) -> Origin | None:
        return None

    def prepare(self, topics: Sequence[str], partitions: int) -> Sequence[str]:
        return ()


class FakeClusters:
    """An affinity of three clusters, of which this is the first.

    Args:
        replicas: The data sources of the others, as far as there are any.
        arrival: The column with the time of arrival; empty if there is none.
    """

    def __init__(self, replicas: Mapping[int, str] | None = None, arrival: str = "") -> None:
        self._origin = Origin(
            column="cluster_id", own=1, known=(1, 2, 3), arrival=arrival, replicas=replicas or {}
        )

    def eligible(self, taken_over: Collection[int] = ()) -> Sequence[ColumnIs]:
        ages = {1: 0.0, 2: 600.0, 3: 1200.0} | dict.fromkeys(taken_over, 0.0)
        return [ColumnIs("cluster_id", cluster, age) for cluster, age in ages.items()]

    def origin(self) -> Origin | None:
        return self._origin


class Terminal(StringIO):
    """Standard input of a terminal, with answers."""

    def isatty(self) -> bool:
        return True


class Made(Choice[Any]):
    """A choice whose plugin is made already."""

    def create(self) -> Any:
        return self.options


def made(seam: Seam, plugin: object) -> Made:
    """Returns the choice of a plugin that is made already."""
    return Made(seam, "memory", plugin)
