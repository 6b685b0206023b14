"""What an earlier version of the product has left behind: it marked batches with leader ids."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from outbox_sdk import TransactionalLane

from .broker import hash_of
from .tables import FenceRow, Row
from .trail import Entry, Session

if TYPE_CHECKING:
    from .world import World

MOST_ROWS = 30


def leave_behind(world: World) -> None:
    """Fills the outbox, and ends each lane of an earlier version where a crash may have ended it.

    The earliest rows of a lane carry the names of up to two batches that are in the log, and some of these
    are deleted already. The next carry the name of a batch that is not. All others carry none.
    """
    chance, scenario = world.chance, world.scenario
    table, place = chance.choice(scenario.tables), chance.choice(scenario.places)
    for _ in range(chance.randint(1, MOST_ROWS)):
        _stash(world, f"k{chance.randrange(scenario.keys)}")
    for lane in range(scenario.former):
        note = TransactionalLane(scenario.former, f"{table}.{lane}.", place)
        fence = world.database.fence[lane] = FenceRow()
        fence.token, fence.lanes, fence.epoch, fence.note = 1, scenario.former, 1, note
        rows = [row for row in world.database.rows.values() if row.bucket % scenario.former == lane]
        world.broker.identity(note.sender).checkpoints[place] = f"1 {','.join(_end(world, lane, rows))}"


def _stash(world: World, key: str) -> None:
    world.transactions += 1
    number = world.database.next_id()
    entry = Entry(world.serial(), key, hash_of(key), world.transactions, world.moment())
    world.audit.inserted(entry)
    world.database.add(Row(number, entry))
    world.audit.committed(entry, world.moment())


def _end(world: World, lane: int, rows: list[Row]) -> list[str]:
    """Marks, publishes and purges some of a lane's rows; returns the parts of its checkpoint."""
    chance = world.chance
    session = Session(lane, f"earlier version/lane {lane}")
    parts = []
    for published in (True, True, False):
        batch, rows = _split(rows, chance.randint(0, 5))
        name = UUID(int=chance.getrandbits(128))
        for row in batch:
            row.leader = name
            if published:
                world.audit.committed_copy(session, row.serial)
                world.audit.seen(session, row.serial, stale=False, now=0.0)
        if batch and published:
            parts.append(f"{name.hex}:{batch[0].id}:{batch[-1].id}")
            for row in batch[: chance.choice((0, 0, 2))]:
                world.database.remove(row)
    return parts


def _split(rows: list[Row], at: int) -> tuple[list[Row], list[Row]]:
    return rows[:at], rows[at:]
