"""One connection to a portable outbox: mark, purge, reset, advance, park, and the fence."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from outbox_api.base.record import Batch, MarkedRecord
from outbox_api.portable.batches import Batches
from outbox_api.portable.by_ids import ChangeByIds
from outbox_api.portable.choosing import Choosing
from outbox_api.portable.days import Days
from outbox_api.portable.dead_letters import Parking
from outbox_api.portable.given_ids import ids_behind, last_id, refused_ids
from outbox_api.portable.marking import Marking
from outbox_api.portable.notes import ensure_identity, random_identity
from outbox_api.portable.outlining import Outlining
from outbox_api.portable.partitions import divided_outbox
from outbox_api.portable.releasing import Releasing
from outbox_api.portable.retention import Retention
from outbox_api.portable.rows import storable
from outbox_api.portable.session import LockTimeout, Session
from outbox_api.portable.view import PortableView
from outbox_api.seams.fence import Fence, TransactionalLane, lost_token, token_step, unexpected_token
from outbox_api.seams.kept import Tended
from outbox_api.seams.outbox_table import UNBOUNDED, Advanced, Changed, Outline
from outbox_api.seams.parking import Poison
from outbox_api.seams.pausing import Pause


class ColdTable(PortableView):
    """What the ``OutboxTable`` of every database does beside the harvest, as :class:`PortableView`."""

    def identity(self) -> str:
        """Returns the outbox's identity."""
        return ensure_identity(self._session, self._sql)

    def forget_skipped(self, age: float, limit: int) -> int:
        """Deletes dead letters that were skipped long ago."""
        with self._session.transaction("delete skipped dead letters"):
            return Parking(self._session, self._sql).forget_skipped(age, limit)

    def tend_kept(self, limit: int) -> Tended:
        """Removes what was kept for long enough, and makes the partitions of the next days."""
        return Retention(self._session, self._tables, self._keep).tend(limit) if self._keep else Tended()

    def tend_days(self) -> Tended:
        """Makes the outbox's partitions of the next days, and removes empty ones of days that are over."""
        return Days(self._session, divided_outbox(self._outbox)).tend()

    def begin_takeover(self, cluster: int, reason: str) -> bool:
        """Stores durably that the rows of a cluster are to be taken over without delay."""
        return self._takeovers.begin(cluster, reason)

    def end_takeover(self, cluster: int) -> bool:
        """Stores durably that a takeover has ended."""
        return self._takeovers.end(cluster)

    def pause(self, topic: str, operator: str, reason: str, seconds: float | None = None) -> Pause:
        """Stores durably that a topic, or the whole outbox, is paused."""
        return self._pausing.pause(topic, operator, reason, seconds)

    def resume(self, topic: str) -> Pause | None:
        """Stores durably that it is paused no longer."""
        return self._pausing.resume(topic)


class PortableTable(ColdTable):
    """The ``OutboxTable`` of a database without anything better: every change is one transaction.

    Its arguments are the base class's.
    """

    def __init__(self, session: Session, *tables: Any, **named: Any) -> None:
        super().__init__(session, *tables, **named)
        self._parking = Parking(session, self._sql)
        choosing = Choosing(session, self._sql)
        self._marking = Marking(session, self._sql, choosing)
        self._batches = Batches(session, self._sql, choosing)
        self._releasing = Releasing(session, self._sql)
        text = self._idiom.time_text
        self._outlining = Outlining(session, self._sql, f"MAX({text})" if text else "")

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        """Makes the caller the leader: raises every lane's token durably."""
        holder = storable(holder)
        self._refuse_ids_behind()
        ensure_identity(self._session, self._sql)
        with self._session.transaction("raise the fence's token"):
            # Serializes bumps even while there are no lanes.
            self._session.fetch(self._sql.hold_note, name=self._name)
            found = {row[0]: row[1] for row in self._session.fetch(self._sql.tokens, name=self._name)}
            former = int(max(found.values(), default=0))
            if expected not in {None, former}:
                raise unexpected_token(expected)
            token = former + token_step()
            made = {"name": self._name, "lanes": lanes, "token": token, "holder": holder}
            new = [
                {**made, "lane": lane, "identity": random_identity()}
                for lane in range(lanes)
                if lane not in found
            ]
            self._session.execute_many(self._sql.make_lane, new)
            self._session.execute(self._sql.bump, name=self._name, lanes=lanes, token=token, holder=holder)
        return token

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        """Starts a lane: raises its epoch."""
        with self._session.transaction("enter a lane"):
            place = {"name": self._name, "lane": lane}
            if not self._session.execute(self._sql.enter, **place, lanes=lanes, token=token):
                raise lost_token(lane, lanes, token)
            epoch, identity = self._session.fetch(self._sql.entered, **place)[0]
        return Fence(lane, lanes, token, int(epoch), identity)

    def mark(  # noqa: PLR0917 - the contract's
        self,
        fence: Fence,
        leader_id: UUID,
        limit: int,
        max_bytes: int = UNBOUNDED,
        excluded_keys: Collection[str] = (),
        source: int = 0,
        excluded_topics: Collection[str] = (),
    ) -> list[MarkedRecord]:
        """Claims a source's earliest rows in one transaction that holds the fence against a bump."""

        def mark() -> list[MarkedRecord]:
            with self._session.transaction("mark"):
                self._hold(fence)
                return self._marking.mark(
                    fence, leader_id, limit, max_bytes, excluded_keys, source, excluded_topics
                )

        try:
            return mark()
        except LockTimeout:
            # For a row that another transaction has locked: once more, without its key.
            if not self._marking.avoid_locked():
                raise
        return mark()

    def advance(  # noqa: PLR0917 - as above
        self,
        fence: Fence,
        finished: Sequence[Batch],
        pending: Sequence[Batch],
        limit: int,
        max_bytes: int = UNBOUNDED,
        source: int = 0,
        excluded_keys: Collection[str] = (),
        excluded_topics: Collection[str] = (),
        dated: bool = False,
    ) -> Advanced:
        """Deletes batches in one transaction that holds the fence, and selects the next in it."""
        batches = (*finished, *pending)
        bounds = (limit, max_bytes, source, excluded_keys, excluded_topics, dated)
        if not finished:
            with self._session.transaction("select a batch", reads=True):
                self._look(fence)
                return Advanced(0, *self._select(fence, batches, *bounds))

        def advance(*, waits: bool) -> Advanced:
            with self._session.transaction("advance"):
                self._hold(fence)
                purged, locked = self._batches.delete(finished, fence.token, waits=waits)
                return Advanced(purged, *self._select(fence, batches, *bounds), locked)

        try:
            return advance(waits=True)
        except LockTimeout:
            if not self._batches.skips_locked:
                raise
        return advance(waits=False)

    def outline(self, fence: Fence, after: int, limit: int, topics: Sequence[str]) -> Outline:
        """Reads ids, topics and keys of rows that wait."""
        return self._outlining.read(fence, after, limit, topics)

    def supersede(self, fence: Fence, batch: Batch) -> int:
        """Deletes rows that need not be delivered in one transaction that holds the fence, durably."""
        try:
            with self._session.transaction("delete superseded rows"):
                self._hold(fence)
                return self._batches.supersede(batch, fence.token)
        except LockTimeout:
            return 0

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """Returns the rows of a batch that are still in the outbox."""
        with self._session.transaction("read the rows of a batch", reads=True):
            return self._batches.rows(batch)

    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Deletes rows that still carry ``leader_id``, durably, around those that others have locked."""
        return self._touch(self._sql.purge, fence, leader_id, ids, "purge")

    def reset(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Clears the leader id of rows that still carry ``leader_id``, durably, as it purges."""
        return self._touch(self._sql.reset, fence, leader_id, ids, "reset")._replace(kept=())

    def park(
        self, fence: Fence, leader_id: UUID | None, poisons: Sequence[Poison], ids: Sequence[int] = ()
    ) -> Changed:
        """Parks the keys of poisonous records in one transaction that holds the fence."""
        leader = None if leader_id is None else self._idiom.uuid_parameter(leader_id)
        heads = {poison.id: poison for poison in poisons}

        def park(waits: bool) -> Changed:
            with self._session.transaction("park"):
                self._hold(fence)
                if leader is None:
                    return Changed(self._parking.park(None, heads))
                free = ids if waits else self._releasing.free(ids)
                some = heads if waits else {number: heads[number] for number in heads if number in free}
                parked = self._parking.park(leader, some)
                self._session.execute_by_ids(self._sql.reset, free, leader=leader)
                return Changed(parked, () if waits else self._releasing.locked(ids, free, leader))

        return self._releasing.around_locked(park)

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        """Stores durably that the lane publishes in transactions and how, or that it no longer does."""
        lanes, sender, location = (noted.lanes, noted.sender, noted.location) if noted else (0, None, None)
        doing = "store who publishes in transactions"
        self._write(self._sql.set_transactional, fence, doing, noted=lanes, sender=sender, location=location)

    def heartbeat(self, fence: Fence, metrics: Mapping[str, Any]) -> None:
        """Writes the lane's metrics."""
        self._write(self._sql.heartbeat, fence, "write a heartbeat", metrics=json.dumps(dict(metrics)))

    def _refuse_ids_behind(self) -> None:
        session, table = self._session, self._idiom.quote_table(self._outbox)
        if seen := ids_behind(session, table, partial(last_id, session, self._outbox), self._origin):
            raise refused_ids(self._name, seen, self._idiom.last_id_cure.format(table=table))

    def _select(
        self, fence: Fence, batches: Sequence[Batch], limit: int, *bounds: Any
    ) -> tuple[list[MarkedRecord], str]:
        return self._batches.select(fence, batches, limit, *bounds) if limit else ([], "")

    def _look(self, fence: Fence) -> None:
        """Compares the fence, without a lock."""
        if not self._session.fetch(self._sql.look, **self._held(fence)):
            raise fence.lost()

    def _hold(self, fence: Fence) -> None:
        if not self._session.fetch(self._sql.hold, **self._held(fence)):
            raise fence.lost()

    def _touch(
        self, change: ChangeByIds, fence: Fence, leader_id: UUID, ids: Sequence[int], doing: str
    ) -> Changed:
        leader = self._idiom.uuid_parameter(leader_id)

        def touch(waits: bool) -> Changed:
            with self._session.transaction(doing):
                self._hold(fence)
                return self._releasing.change(change, ids, leader, fence.token, waits=waits)

        return self._releasing.around_locked(touch)

    def _write(self, sql: str, fence: Fence, doing: str, **values: object) -> None:
        with self._session.transaction(doing):
            if not self._session.execute(sql, **self._held(fence), **values):
                raise fence.lost()

    def _held(self, fence: Fence) -> dict[str, object]:
        return {
            "name": self._name,
            "lane": fence.lane,
            "lanes": fence.lanes,
            "token": fence.token,
            "epoch": fence.epoch,
        }
