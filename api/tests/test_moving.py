"""Which rows of another table are moved, in which portions, and what becomes of those that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from outbox_api import AccessDenied, DriverError, LeadershipLost
from outbox_api.base.errors import RolledBack
from outbox_api.portable import moving
from outbox_api.portable.held_keys import LOCKED_SECONDS, REFUSED_SECONDS
from outbox_api.portable.intake import UNTOLD, Listed
from outbox_api.portable.moving import HOPELESS, Mover
from outbox_api.portable.session import LockTimeout

ROOM = 1_000


class Table:
    """Another table, and the outbox that its rows are moved into: a list each.

    Attributes:
        rows: Number → key and size.
        locked: Rows that others have locked.
        refused: Row → the error with which the outbox refuses it.
        outbox: What has arrived, a list for each transaction.
        scans: The keys that each scan left out.
    """

    table = "events"
    tells_keys = True

    def __init__(self, rows: dict[int, tuple[str, int]]) -> None:
        self.session: Any = self
        self.rows = rows
        self.locked: set[int] = set()
        self.refused: dict[int, DriverError] = {}
        self.broken: DriverError | None = None
        self.outbox: list[list[int]] = []
        self.scans: list[set[str]] = []
        self.reads = 0
        self.lost: set[int] = set()
        self._written: list[int] = []

    @contextmanager
    def transaction(self, doing: str, *, reads: bool = False) -> Iterator[None]:
        self._written = []
        yield
        if self._written:
            self.outbox.append(self._written)
            for row in self._written:
                del self.rows[row]

    def execute(self, sql: str, **_: object) -> int:
        if self.broken:
            raise self.broken
        return 0

    def scan(self, most: int, without: list[str]) -> list[Listed]:
        self.scans.append(set(without))
        if not self.tells_keys:
            return [Listed(row, UNTOLD, size) for row, (_, size) in sorted(self.rows.items())][:most]
        found = [
            Listed(row, key, size) for row, (key, size) in sorted(self.rows.items()) if key not in without
        ]
        return found[:most]

    def free(self, places: list[int]) -> dict[int, dict[str, object]]:
        self.reads += len(places)
        found = [row for row in places if row in self.rows and row not in self.locked]
        return {row: {"row": row, "kafka_key": self.rows[row][0]} for row in found}

    def there(self, places: list[int]) -> dict[int, tuple[str, str]]:
        if self.lost & {*places}:
            self.lost.clear()
            raise refusal(retryable=True)
        return {row: (str(row), self.rows[row][0]) for row in places if row in self.rows}

    def holders(self, places: list[int]) -> str:
        return f"by {len(places)}"

    def stash(self, values: list[dict[str, int]]) -> None:
        if self.broken:
            raise self.broken
        for each in values:
            if error := self.refused.get(each["row"]):
                raise error

    def remove(self, places: list[int]) -> None:
        self._written = places

    def trials(self) -> list[tuple[str, str, dict[str, object]]]:
        return [("INSERT", "", {})]

    @property
    def moved(self) -> list[int]:
        return [row for portion in self.outbox for row in portion]


class World:
    """A mover with a clock of its own."""

    def __init__(self, rows: int = 9, keys: int = 3) -> None:
        self.now = 0.0
        self.table = Table({row: (f"k{row % keys}", 10) for row in range(1, rows + 1)})
        self.mover = Mover("events", lambda: self.now)

    def take(self) -> None:
        while self.mover.take(self.table, lambda: None, ROOM):  # type: ignore[arg-type]  # it looks like one
            pass

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.take()


@pytest.fixture
def world() -> World:
    return World()


def refusal(retryable: bool = False) -> DriverError:
    return DriverError("too long", retryable=retryable)


def test_one_scan_serves_many_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PORTION_BYTES", 35)
    world.take()
    assert world.table.outbox == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert len(world.table.scans) == 2, "the second finds nothing"
    assert world.mover.state().stuck == 0


def test_a_locked_row_is_tried_again_and_later_ones_of_its_key_wait_behind_it(world: World) -> None:
    world.table.locked = {2}
    world.take()
    assert world.table.moved == [1, 3, 4, 6, 7, 9]
    reads = world.table.reads
    for _ in range(5):
        world.wait(LOCKED_SECONDS)
    assert world.table.reads == reads + 5, "each scan leaves the key out, and its first row is tried"
    assert world.mover.state().reason == "row 2: another transaction has locked it: by 1; end that"
    world.table.locked = set()
    world.wait(LOCKED_SECONDS)
    assert world.table.moved[6:] == [2, 5, 8]
    assert (world.mover.state().held, world.mover.state().stuck) == (0, 0)


@pytest.mark.parametrize("tells_keys", [True, False])
@pytest.mark.parametrize("also", [{}, {7: "too long"}, {2: "gone"}, {2: "deadlock"}, {3: "deadlock"}])
@pytest.mark.parametrize("fault", ["locked", "large", "lost"])
def test_no_row_overtakes_one_of_its_key_that_waits_before_it(
    tells_keys: bool, fault: str, also: dict[int, str]
) -> None:
    world = World(rows=30)
    table = world.table
    table.tells_keys = tells_keys
    table.locked = {11} if fault == "locked" else set()
    if fault != "locked":
        table.rows[11] = ("k2", ROOM + 1)
        table.lost = {11} if fault == "lost" else set()
    errors = {"gone": refusal(retryable=True), "deadlock": RolledBack("no", retryable=True)}
    table.refused = {row: errors.get(what, refusal()) for row, what in also.items()}
    for seconds in (0, LOCKED_SECONDS, LOCKED_SECONDS, 2 * REFUSED_SECONDS, LOCKED_SECONDS, LOCKED_SECONDS):
        with suppress(DriverError):
            world.wait(seconds)
        if seconds == LOCKED_SECONDS:
            table.refused = {}
    assert {2, 5, 8, 10, 30} <= {*table.moved}, "neither those before it nor those of other keys wait for it"
    assert not {11, 14} & {*table.moved}
    table.locked, table.rows[11] = set(), ("k2", 10)
    for _ in range(4):
        world.wait(REFUSED_SECONDS)
    assert [row for row in table.moved if row % 3 == 2] == [*range(2, 31, 3)]
    assert sorted(table.moved) == [*range(1, 31)]


def test_a_row_that_has_gone_holds_nothing_back(world: World) -> None:
    world.table.locked = {2}
    world.take()
    del world.table.rows[2]
    world.wait(LOCKED_SECONDS)
    world.wait(LOCKED_SECONDS)
    assert world.table.moved[6:] == [5, 8]


def test_a_row_that_is_refused_is_found_and_tried_again(world: World) -> None:
    world.table.refused = {4: refusal(), 8: refusal()}
    world.take()
    assert world.table.moved == [1, 2, 3, 5, 6, 9]
    world.now += 30
    state = world.mover.state()
    assert (state.held, state.held_for) == (2, 30)
    assert "the outbox refuses it: too long; widen the outbox's column" in state.reason
    world.table.refused = {}
    world.wait(REFUSED_SECONDS)
    assert world.table.moved[6:] == [4, 7, 8]


def test_a_row_that_its_table_keeps_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(places: list[int]) -> None:
        if 4 in places:
            raise refusal()
        world.table._written = places

    monkeypatch.setattr(world.table, "remove", remove)
    world.take()
    assert world.table.moved == [1, 2, 3, 5, 6, 8, 9]
    assert world.mover.state().reason.startswith("row 4: its table keeps it: too long; drop the foreign key")


@pytest.mark.parametrize(("error", "slow"), [(RolledBack, True), (LockTimeout, False)])
def test_a_list_that_waits_for_a_lock_is_not_called_slow(
    world: World, error: type[DriverError], slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(*_: object) -> list[Listed]:
        raise error("cancelled", retryable=True)

    monkeypatch.setattr(world.table, "scan", scan)
    with pytest.raises(error):
        world.take()
    assert ("intake.order" in world.mover.state().reason) is slow


def test_an_error_that_is_no_rows_fault_holds_no_row_back(world: World) -> None:
    for error in (AccessDenied("no"), refusal(retryable=True)):
        world.table.broken = error
        with pytest.raises(DriverError, match=str(error)):
            world.take()
        state = world.mover.state()
        assert (state.held, state.reason) == (0, str(error))
    world.table.broken = refusal()  # the statements themselves are refused, too
    with pytest.raises(DriverError, match="too long"):
        world.take()
    world.table.broken = None
    world.take()
    assert world.table.moved == list(range(1, 10))


def test_if_all_rows_are_refused_it_is_said() -> None:
    world = World(rows=500, keys=500)
    world.table.refused = {row: refusal() for row in range(1, 501)}
    with pytest.raises(DriverError, match="too long"):
        world.take()
    assert world.mover.state().held == HOPELESS + 1


def test_a_row_with_which_the_connection_is_lost_is_found(world: World) -> None:
    world.table.refused = {5: refusal(retryable=True)}
    losses = 0
    while len(world.table.moved) < 7:
        try:
            world.wait(LOCKED_SECONDS)
        except DriverError:
            losses += 1
            assert losses < 10
    assert world.table.moved == [1, 2, 3, 4, 6, 7, 9]
    assert "the connection is lost whenever it is moved" in world.mover.state().reason


def test_a_transaction_that_was_rolled_back_holds_no_row_back(world: World) -> None:
    world.table.refused = {1: RolledBack("deadlock", retryable=True)}
    for _ in range(10):
        with pytest.raises(RolledBack):
            world.take()
    assert world.mover.state().held == 0
    world.table.refused = {}
    world.take()
    assert world.table.moved == list(range(1, 10))


def test_a_large_row_is_not_read(world: World) -> None:
    world.table.rows[4] = ("k1", ROOM + 1)
    world.take()
    assert world.table.moved == [1, 2, 3, 5, 6, 8, 9]
    assert "limits.maxLaneBytes" in world.mover.state().reason


def test_nothing_is_moved_once_leadership_is_lost(world: World) -> None:
    def lost() -> None:
        raise LeadershipLost("another leads")

    with pytest.raises(LeadershipLost):
        world.mover.take(world.table, lost, ROOM)  # type: ignore[arg-type]  # as above
    assert world.table.outbox == []


def test_many_rows_of_a_held_key_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "LISTED", 5)
    world = World(rows=0)
    world.table.rows = {row: ("busy" if row <= 50 else "k", 10) for row in range(1, 61)}
    world.table.locked = {1}
    world.take()
    world.wait(LOCKED_SECONDS)
    assert world.table.moved == list(range(51, 61))


@pytest.mark.parametrize("fault", ["refused", "locked"])
def test_an_empty_key_is_no_key_that_a_scan_does_not_tell(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "PORTION", 10)
    world = World(rows=30)
    table = world.table
    table.tells_keys = False
    table.rows[3] = ("", 10)
    table.refused, table.locked = ({3: refusal()}, set()) if fault == "refused" else ({}, {3})
    world.take()
    assert table.moved == [row for row in range(1, 31) if row != 3]
    table.rows |= dict.fromkeys(range(31, 34), ("k", 10))
    world.wait(LOCKED_SECONDS)
    assert table.moved[29:] == [31, 32, 33]
