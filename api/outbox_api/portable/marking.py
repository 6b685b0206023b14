"""How a portable outbox marks: rows are chosen, claimed by their ids, then read where they are large."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from time import monotonic
from uuid import UUID

from outbox_api.base.record import Batch, MarkedRecord
from outbox_api.portable.choosing import Choosing, Chosen, Wanted
from outbox_api.portable.runs import change_rows
from outbox_api.portable.session import Session
from outbox_api.portable.statements import UNCLAIMED, Statements
from outbox_api.seams.fence import Fence

_LOCK_CHECK_SECONDS = 60.0
"""For how long a connection looks for locked rows before each mark, after it has waited for one in vain."""


class Marking:
    """Marks over one connection, within the caller's transaction, which holds the fence."""

    def __init__(self, session: Session, sql: Statements, choosing: Choosing) -> None:
        self._session = session
        self._idiom = session.idiom
        self._sql = sql
        self._choosing = choosing
        self._check_locks_until = -inf

    def mark(  # noqa: PLR0917 - the contract's
        self,
        fence: Fence,
        leader_id: UUID,
        limit: int,
        max_bytes: int,
        excluded: Collection[str],
        source: int,
        topics: Collection[str] = (),
    ) -> list[MarkedRecord]:
        """Chooses and claims rows of a source; leaves out those that somebody has deleted meanwhile."""
        leader = self._idiom.uuid_parameter(leader_id)
        while True:
            without, values = self._sql.without(excluded, topics)
            conditions = (UNCLAIMED, *without)
            wanted = Wanted(limit, max_bytes, conditions, {**values, "leader": leader}, source)
            chosen = self._choosing.choose(fence, wanted)
            if not (held := self._held(chosen)):
                break
            excluded = {*excluded, *held}
        statements = (self._sql.carried_rows, self._sql.carried_heads)
        return self._choosing.read(self._claimed(chosen, leader), max_bytes, statements, leader=leader)

    def avoid_locked(self) -> bool:
        """Makes marks leave out the keys of locked rows for a while; returns whether the database can."""
        self._check_locks_until = monotonic() + _LOCK_CHECK_SECONDS
        return bool(self._sql.free)

    def _held(self, chosen: Chosen) -> set[str]:
        """Returns the keys of rows that others hold; none while nobody has waited for such a row in vain."""
        if not self._sql.free or not chosen.rows or monotonic() > self._check_locks_until:
            return set()
        ids = chosen.ids
        free = {int(row[0]) for row in self._session.fetch_by_ids(self._sql.free, ids)}
        held = [number for number in ids if number not in free]
        found = self._session.fetch_by_ids(self._sql.keys, held)
        return {self._idiom.read_text(key) or "" for _, key in found}

    def _claimed(self, chosen: Chosen, leader: object) -> Chosen:
        ids = chosen.ids
        if change_rows(self._session, self._sql.claim, Batch.of(ids), leader=leader) == len(ids):
            return chosen
        return chosen.only(
            int(row[0]) for row in self._session.fetch_by_ids(self._sql.carried, ids, leader=leader)
        )
