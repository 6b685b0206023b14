"""Holds the model against the code: a recovery asks for what the model's lane asks for, and ends alike.

Nobody else does anything meanwhile but the broker, which ends transactions: what the code asks for depends on
the replies alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from outbox_api import (
    Advanced,
    Attempt,
    Batch,
    DriverError,
    Failure,
    Fence,
    Found,
    LeadershipLost,
    MarkedRecord,
    Parked,
    Pause,
    TransactionalLane,
)
from outbox_core.delivery.checkpoint import decode, encode
from outbox_core.delivery.recovery import Doubt, Recovery, Result
from outbox_core.settings import Delivery

from . import world as model
from .actions import action
from .checker import reachable
from .lane_view import LaneView, with_process
from .lanes import Lanes
from .protocol import ExactlyOnce
from .scope import Scope
from .servers import LOST, Right, Servers
from .world import GONE, NOTHING, Call, Checkpoint, Lane, Note, World


def recoveries(scope: Scope, *, locking: bool = False) -> Iterator[RecoveryComparison]:
    """Returns a comparison for each state in which a lane that transacts begins, or one is settled.

    Args:
        scope: Of which.
        locking: Whether others have locked a row that is purged.
    """
    seen = set()
    for world in reachable(ExactlyOnce(scope)):
        for number, process in enumerate(world.processes):
            for lane in process.lanes:
                alone = _alone(world, number, lane)
                if (
                    lane.phase != "enter"
                    or alone in seen
                    or not (scope.settings[number].once or lane.settles)
                ):
                    continue
                seen.add(alone)
                yield RecoveryComparison(scope, alone, number, locking=locking)


def _alone(world: World, number: int, lane: Lane) -> World:
    """Returns a world in which nobody does anything but one lane."""
    idle = (model.Process(),) * len(world.processes)
    alone = world._replace(processes=idle, strays=(), disk=world.database, terms=0, faults=0)
    return with_process(alone, number, world.processes[number]._replace(lanes=(lane,)))


class RecoveryComparison:
    """One recovery.

    Args:
        scope: The scope of the state.
        world: The state in which it begins.
        number: The number of the process that has the lane, which is its only one.
        locking: As for :func:`recoveries`.

    Attributes:
        doubt: What it has told of the last attempt.
        actions: Which of the model's actions the code has taken.
    """

    def __init__(self, scope: Scope, world: World, number: int, *, locking: bool) -> None:
        self.doubt: Doubt | None = None
        self.actions: set[str] = set()
        self._model = ExactlyOnce(scope)
        self._servers = Servers(scope, frozenset())
        self._lanes = Lanes(scope, frozenset(), self._servers)
        self.ids = scope.ids or tuple(range(len(scope.keys)))
        self._setting = scope.settings[number]
        self._world, self._number = world, number
        self._token = world.processes[number].token
        self._begun = world.processes[number].lanes[0]
        self._locking = locking

    def run(self) -> str:
        """Runs the recovery; returns how it ends: "opened", "settled", "fenced", "refused", or "locked".

        Raises:
            AssertionError: The code does not do what the model does.
        """
        delivery = Delivery.EXACTLY_ONCE if self._setting.once else Delivery.AT_LEAST_ONCE
        recovery = Recovery(self._setting.lanes, self._token, delivery)
        number = self._begun.number
        try:
            if self._begun.settles:
                settled = recovery.recover(self, {number: TransactionalLane(-1, "sender", "place")})
                self.doubt = settled[number].doubt
                lanes = self._world.processes[self._number].lanes
                assert not any(lane.settles for lane in lanes), "the model's lane goes on"
                return "settled"
            opened = recovery.open(self, number)
        except LeadershipLost:
            return "fenced"
        except DriverError as error:
            return self._failed(error)
        self.doubt = opened.doubt
        assert self.lane.phase == "run"
        assert self._left(_batches(opened.locked)) == self._left(self.lane.locked)
        return "opened"

    def _failed(self, error: DriverError) -> str:
        ending, phase = ("locked", "purge") if error.retryable else ("refused", "refused")
        assert self.lane.phase == phase, str(error)
        return ending

    @property
    def _view(self) -> LaneView:
        return LaneView(self._world, self._number, 0, self._setting, frozenset())

    @property
    def lane(self) -> Lane:
        return self._view.lane

    # --- what a recovery asks for -------------------------------------------------------------------

    @property
    def table(self) -> Any:
        """Itself, as it has the methods of a table that a recovery calls."""
        return self

    @property
    def name(self) -> str:
        return f"outbox{self._setting.name}"

    def for_each(
        self, lanes: Sequence[int], act: Callable[[RecoveryComparison, int], Result]
    ) -> list[Result]:
        return [act(self, lane) for lane in lanes]

    def parked(self) -> Parked:
        return Parked(0, None)

    def pauses(self) -> tuple[Pause, ...]:
        return ()

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        attempt = self.ask("enter", lane, lanes, token)
        return Fence(lane, lanes, token, attempt, "identity")

    def transactional_lanes(self) -> Mapping[int, TransactionalLane]:
        self.ask("recall", self._begun.number)
        notes = ((lane, row.noted) for lane, row in enumerate(self._world.database.fence))
        return {lane: _noted(lane, note) for lane, note in notes if note}

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        rows = self.ask("read", *_batches([batch]))
        return [MarkedRecord(self.ids[row], "topic", "key", "value") for row in rows]

    def advance(self, fence: Fence, finished: Sequence[Batch], *_: object) -> Advanced:
        before = self._world.database.rows.count(GONE)
        answer = self.ask("advance", _right(fence), _batches(finished), NOTHING)
        purged = self._world.database.rows.count(GONE) - before
        return Advanced(purged, [], "", [Batch.of(each.ids, str(each.newest)) for each in answer.locked])

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        self.ask("set_transactional", _right(fence), noted and self._note(noted))

    def open_sender(self, name: str) -> Sender:
        self.ask("open", self.channel(name))
        return Sender(self, self.channel(name), self._setting.place)

    def close_sender(self, name: str) -> None:
        """Does nothing, as the model has no such step."""

    def ask(self, name: str, *arguments: Any) -> Any:
        """Has the model's server carry out the model's call, which must be this one, and its lane go on."""
        call = self._lanes.call(self._view)
        assert call is not None, f"the model's lane asks for nothing in the phase {self.lane.phase}"
        same = call.name == name and self._plain(call.arguments) == self._plain(arguments)
        assert same, f"the code asks for {name} {arguments}, the model for {call}"
        outcome = self._locked_out(call) if name == "advance" and self._locking else None
        while (found := outcome or self._servers.execute(self._world, call)) is None:
            told, self._world = next(iter(self._model.coordinate(self._world)))
            self.actions.add(action(told))
        told, self._world = self._lanes.answered(self._view, call, *found)
        self.actions.add(action(told))
        if found[1] is LOST:
            raise LeadershipLost("the fence is another's")
        return found[1]

    def _locked_out(self, call: Call) -> Any:
        """Returns the outcome of a purge while others have locked the first row; ``None`` without rows."""
        rows = self._left(call.arguments[1])
        if not rows:
            return None
        return self._servers.advance(self._world, *call.arguments, locked=frozenset({min(rows)}))

    # --- what is compared ---------------------------------------------------------------------------

    def _plain(self, arguments: tuple[Any, ...]) -> list[Any]:
        """Returns arguments with the rows of batches, whatever batches they are in, that are not purged."""
        return [self._plain_one(each) for each in arguments]

    def _plain_one(self, argument: Any) -> Any:
        if isinstance(argument, Checkpoint):
            return self._left(argument.published), argument.attempted
        if isinstance(argument, model.Batch):
            return self._left((argument,))
        if isinstance(argument, tuple) and all(isinstance(each, model.Batch) for each in argument):
            return self._left(argument)
        return argument

    def _left(self, batches: model.Batches) -> set[int]:
        return self._servers.outbox.of(self._world.database.rows, batches)

    def row(self, id_: int) -> int:
        """Returns the row of an id that the lane is not sure about."""
        [row] = [row for row in self.lane.unsure if self.ids[row] == id_]
        return row

    def channel(self, name: str) -> int:
        """Returns what the model calls the sender of a name."""
        table, lane, _ = name.split(".")
        return int(table.removeprefix("outbox")) * len(self._world.database.fence) + int(lane)

    def _note(self, note: TransactionalLane) -> Note:
        return Note(
            note.lanes, self.channel(note.sender) // len(self._world.database.fence), int(note.location)
        )


class Sender:
    """An open sender, to which the model's server answers."""

    def __init__(self, comparison: RecoveryComparison, channel: int, place: int) -> None:
        self._comparison = comparison
        self._channel = channel
        self._place = place
        self.location = str(place)

    def attempt(self, location: str = "") -> Attempt | None:
        location = location or self.location
        checkpoint = self._comparison.ask("look", self._channel, int(location))
        return checkpoint and Attempt(_text(checkpoint), location)

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        asked = tuple(self._comparison.row(record.id) for record in records)
        found = self._comparison.ask(
            "find", self._channel, int(trace), self._comparison.lane.attempted, asked
        )
        return Found([self._comparison.ids[row] for row in found])

    def publish(self, _records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        published, attempted = decode(checkpoint)
        assert attempted is None
        written = Checkpoint(_batches(published))
        self._comparison.ask("freshen", self._channel, self._comparison.lane.epoch, self._place, written)
        return []

    def close(self) -> None:
        raise NotImplementedError


def _noted(lane: int, note: Note) -> TransactionalLane:
    return TransactionalLane(note.lanes, f"outbox{note.name}.{lane}.identity", str(note.place))


def _right(fence: Fence) -> Right:
    return fence.lane, fence.lanes, fence.token, fence.epoch


def _batches(batches: Iterable[Batch]) -> model.Batches:
    return tuple(model.Batch(tuple(batch.ids()), int(batch.newest)) for batch in batches)


def _text(checkpoint: Checkpoint) -> str:
    published = [Batch.of(each.ids, str(each.newest)) for each in checkpoint.published]
    attempted = checkpoint.attempted
    return encode(published, attempted and Batch.of(attempted.ids, str(attempted.newest)))
