"""One connection to the outbox as a query of Spark has it: waits for each answer, as a recovery does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from outbox_api import Advanced, Backlog, Batch, Changed, Fence, LaneStatus, MarkedRecord, Poison
from outbox_api.seams.kept import Tended
from outbox_core.delivery.commands import Advance

from .base_statements import record_of
from .database import Database, Transaction
from .lane_table import Horizon
from .recovery import Servers, Settings
from .scheduler import Host
from .statements import Listing
from .trail import Session

if TYPE_CHECKING:
    from .spark_world import SparkWorld

SETTINGS = Settings("public.box", "nowhere")


class Look(Transaction):
    """Reads something, as of one moment."""

    def __init__(self, database: Database, look: Callable[[], Any]) -> None:
        super().__init__(database)
        self._look = look

    def run(self) -> None:
        self.pause_then(lambda: self.refuse(self._look()))


class SparkTable(Servers):
    """The table, as far as claim and replay call it.

    Args:
        world: The world.
        host: Where it is used: of a driver, or of a task.
        session: The driver's.
    """

    world: SparkWorld

    def __init__(self, world: SparkWorld, host: Host, session: Session) -> None:
        super().__init__(world, host, SETTINGS, session)
        self._horizon = Horizon(world, host.clock)

    # --- nothing is kept, and no partition is of a day ----------------------------------------------

    def tend_kept(self, _limit: int) -> Tended:
        return Tended()

    def tend_days(self) -> Tended:
        return Tended()

    # --- the fence ----------------------------------------------------------------------------------

    def identity(self) -> str:
        return str(self._look(lambda: "box"))

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        token = super().bump(lanes, holder, expected)
        self.world.holders[token] = holder
        return token

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        self.session.token = token
        return super().enter(lane, lanes, token)

    def lane_statuses(self) -> list[LaneStatus]:
        rows, holders = self.world.database.fence, self.world.holders
        statuses: list[LaneStatus] = self._look(
            lambda: [
                LaneStatus(
                    Fence(lane, row.lanes, row.token, row.epoch), holders.get(row.token, "a harvester"),
                    datetime.fromtimestamp(0, UTC), None, None, {},
                )
                for lane, row in sorted(rows.items())
            ]
        )  # fmt: skip
        return statuses

    # --- the rows -----------------------------------------------------------------------------------

    def advance(self, fence: Fence, finished: Sequence[Batch], *more: Any, **_: bool) -> Advanced:
        pending, limit, max_bytes = more
        database, horizon = self.world.database, self._horizon
        if horizon.settled.due():
            newest, holders = self._ask(lambda: Listing(database, horizon.settled.floor()))
            horizon.settled.listed(newest, holders, prepared=False)
        command = Advance([*finished], [*pending], limit, max_bytes)
        common = (database, self.session, fence, None)
        reply: Any = self._ask(lambda: horizon.advance(common, command))
        horizon.take_note(command, reply)
        return Advanced(reply.purged, [*map(self._dated, reply.records)], reply.newest, reply.locked)

    def _dated(self, record: MarkedRecord) -> MarkedRecord:
        """Has some records tell when they were created, where the database does at all."""
        tells = self.world.database.dates and self.world.chance.random() < 0.3
        row = self.world.database.rows.get(record.id) if tells else None
        return record._replace(created=row.created) if row is not None else record

    def park(self, fence: Fence, _leader_id: None, poisons: Sequence[Poison]) -> Changed:
        common = (self.world.database, self.session, fence, None)
        self._horizon.settled.released()
        changed: Changed = self._ask(
            lambda: self.world.parts.park(common, [poison.id for poison in poisons], [])
        )
        return changed

    def peek(self, after: int, limit: int) -> list[MarkedRecord]:
        database = self.world.database

        def look() -> list[MarkedRecord]:
            rows = [database.rows[number] for number in database.ids if number > after][:limit]
            return [record_of(database, row)._replace(created=row.created) for row in rows]

        records: list[MarkedRecord] = self._look(look)
        return records

    # --- what it tells ------------------------------------------------------------------------------

    def now(self) -> datetime:
        return datetime.fromtimestamp(float(self._look(lambda: self.world.scheduler.now)), UTC)

    def backlog(self) -> Backlog:
        return Backlog(int(self._look(lambda: len(self.world.database.rows))), exact=True, oldest=None)

    def close(self) -> None:
        """Disconnects. A statement that is out goes on."""

    def _look(self, look: Callable[[], Any]) -> Any:
        return self._ask(partial(Look, self.world.database, look))
