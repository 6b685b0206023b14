"""A model of an outbox in plain lists, with which the simulation compares the table after each step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from outbox_api import Batch, DeadLetterStatus, Fence, MarkedRecord

from outbox_testkit.conformance.under_test import texts


@dataclass(eq=False)
class Row:
    """A record that was stashed.

    Attributes:
        key: Its key.
        value: Its value; no other row has it at the same time.
        began: When its transaction began, in steps.
        ended: When it was committed.
        place: Its position within the transaction.
        id: Its id, once somebody has seen it.
        leader: Its leader id.
        cluster: The cluster that it was written in.
    """

    key: str
    value: str
    began: int
    ended: int = -1
    place: int = 0
    id: int | None = None
    leader: UUID | None = None
    cluster: int = 1

    def follows(self, other: Row) -> bool:
        """Returns whether it must follow another row of its key, which its application could see."""
        within = (self.began, self.ended) == (other.began, other.ended) and self.place > other.place
        return other.ended < self.began or within


@dataclass
class Model:
    """The tables of an outbox.

    Attributes:
        homes: Number of lanes → key → lane.
        rows: The committed rows of the outbox.
        letters: Id → row and status of each dead letter.
        token: The leader's token.
        lanes: How many lanes it has.
        attempts: Lane → its latest epoch.
        own: The cluster that rows belong to unless they say another.
    """

    homes: Mapping[int, Mapping[str, int]]
    rows: list[Row] = field(default_factory=list)
    letters: dict[int, tuple[Row, DeadLetterStatus]] = field(default_factory=dict)
    token: int = -1
    lanes: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    own: int = 1
    _seen: dict[str, list[Row]] = field(default_factory=dict)

    def holds(self, fence: Fence) -> bool:
        """Returns whether a fence is the lane's present one (invariant 4)."""
        held = (self.token, self.lanes, self.attempts.get(fence.lane))
        return held == (fence.token, fence.lanes, fence.epoch)

    def parked(self) -> set[str]:
        """Returns the parked keys."""
        return {row.key for row, status in self.letters.values() if status is DeadLetterStatus.PARKED}

    def claimed(self, leader: UUID) -> list[Row]:
        """Returns the rows with a leader id, by id."""
        return sorted((row for row in self.rows if row.leader == leader), key=_id)

    def selected(self, batches: Sequence[Batch]) -> list[Row]:
        """Returns the rows of batches, by id."""
        ids = {number for batch in batches for number in batch.ids()}
        return sorted((row for row in self.rows if row.id in ids), key=_id)

    def mark(
        self, fence: Fence, leader: UUID, limit: int, marked: Sequence[MarkedRecord], cluster: int = 1
    ) -> None:
        """Checks the result of a mark of a cluster's rows, and records it."""
        for row in self._take(
            fence, limit, marked, lambda row: row.cluster == cluster and row.leader != leader
        ):
            row.leader = leader

    def select(
        self,
        fence: Fence,
        limit: int,
        batches: Sequence[Batch],
        selected: Sequence[MarkedRecord],
        cluster: int,
    ) -> None:
        """Checks the result of a selection of a cluster's rows, which leaves out batches."""
        ids = {number for batch in batches for number in batch.ids()}
        self._take(fence, limit, selected, lambda row: row.cluster == cluster and row.id not in ids)

    def _take(
        self,
        fence: Fence,
        limit: int,
        records: Sequence[MarkedRecord],
        wants: Callable[[Row], bool],
    ) -> list[Row]:
        """Checks that records are the earliest rows of those that are wanted; returns these rows.

        The ids of rows that nobody has seen yet are unknown; only the order of these rows is known.
        """
        parked, homes = self.parked(), self.homes[fence.lanes]
        wanted = {
            row.value: row
            for row in self.rows
            if homes[row.key] == fence.lane and row.key not in parked and wants(row)
        }
        assert len(records) == min(limit, len(wanted)), "as many as there are, up to the limit"
        ids = [record.id for record in records]
        assert ids == sorted(set(ids)), "by id"
        taken = []
        for value, record in zip(texts(records), records, strict=True):
            assert value in wanted, f"{record} was not for this lane to take now"
            row = wanted.pop(value)
            assert row.key == record.key
            self._learn(row, record.id)
            taken.append(row)
        for left in wanted.values():
            for row in taken:
                assert left.id is None or left.id > _id(row), f"{left} is earlier than {row}"
                assert left.key != row.key or not row.follows(left), f"{row} follows {left}"
        return taken

    def release(self, leader: UUID, ids: Collection[int], *, purge: bool) -> int:
        """Purges or resets rows; returns how many rows change."""
        changed = [row for row in self.rows if row.leader == leader and row.id in ids]
        for row in changed:
            row.leader = None
        if purge:
            self.rows = [row for row in self.rows if row not in changed]
        return len(changed)

    def finish(self, batches: Sequence[Batch]) -> int:
        """Purges batches; returns how many rows are deleted."""
        before = len(self.rows)
        ids = {number for batch in batches for number in batch.ids()}
        self.rows = [row for row in self.rows if row.id not in ids]
        return before - len(self.rows)

    def park(self, leader: UUID | None, head: int, ids: Collection[int] = ()) -> int:
        """Parks a key; returns how many keys were parked."""
        heads = [row for row in self.rows if row.id == head and leader in (None, row.leader)]
        if leader:
            self.release(leader, ids, purge=False)
        for row in heads:
            self.letters[head] = (row, DeadLetterStatus.PARKED)
        return len(heads)

    def retry(self, ids: Collection[int]) -> list[int]:
        """Frees keys."""
        chosen = self._in(DeadLetterStatus.PARKED, ids)
        for number in chosen:
            del self.letters[number]
        return chosen

    def skip(self, ids: Collection[int]) -> list[int]:
        """Skips heads."""
        chosen = self._in(DeadLetterStatus.PARKED, ids)
        for number in chosen:
            row, _ = self.letters[number]
            self.rows.remove(row)
            self.letters[number] = (row, DeadLetterStatus.SKIPPED)
        return chosen

    def redrive(self, ids: Collection[int], now: int) -> list[int]:
        """Redrives heads: each goes behind all rows, in order, and is this cluster's."""
        chosen = self._in(DeadLetterStatus.SKIPPED, ids)
        for place, number in enumerate(chosen):
            row, _ = self.letters.pop(number)
            self.rows.append(Row(row.key, row.value, now, now, place, cluster=self.own))
        return chosen

    def _in(self, status: DeadLetterStatus, ids: Collection[int]) -> list[int]:
        return sorted(
            number for number in ids if number in self.letters and self.letters[number][1] is status
        )

    def _learn(self, row: Row, number: int) -> None:
        """Records a row's id: it never changes, and is greater than the ids of earlier rows."""
        assert row.id in (None, number), f"{row} had another id before"
        if row.id is None:
            row.id = number
            others = self._seen.setdefault(row.key, [])
            for other in others:
                assert other.id != number, f"{row} has the id of {other}"
                assert not row.follows(other) or _id(other) < number, f"{row} follows {other}"
                assert not other.follows(row) or number < _id(other), f"{other} follows {row}"
            others.append(row)


def _id(row: Row) -> int:
    assert row.id is not None
    return row.id
