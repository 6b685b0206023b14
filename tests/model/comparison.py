"""Holds the model against the code: whatever the state machine decides, the model must be able to do."""

from __future__ import annotations

import random
from uuid import UUID

from outbox_core.config.settings import Failures, Limits
from outbox_core.delivery.commands import Advance, BatchCommand, Publish
from outbox_core.delivery.exactly_once import TransactionalMarkPurge
from outbox_sdk import Batch, Failure, MarkedRecord

from .protocol import ExactlyOnce
from .scope import Scope, Setting
from .world import ABSENT, GONE, Lane, Wish, World

_SCOPE = Scope(
    "", (Setting(),), (0, 0, 1, 0, 0, 2, 0), frozenset({2, 5}), (1, 2), 1, 99, frozenset({"abort"})
)
_PAUSE = 60.0
"""Seconds that are longer than whatever the state machine waits for."""


class Comparison:
    """The state machine of a lane, and beside it the model's only lane, in a history drawn from a seed.

    Attributes:
        world: The model's state.
        machine: The code.
    """

    def __init__(self, seed: int) -> None:
        names = (UUID(int=number) for number in range(1, 9999))
        limits = Limits(max_batch_records=2)
        self.machine = TransactionalMarkPurge(limits, Failures(), names.__next__, lambda: 0.5)
        self._model = ExactlyOnce(_SCOPE)
        self.world: World = self._model.first()
        self._random = random.Random(seed)
        self._names: dict[UUID, int] = {}  # of batches, in the machine and in the model
        self._advance: Advance | None = None  # what is out
        self._publish: Publish | None = None
        self._now = 0.0
        self._follow("is elected")
        while self._lanes[0].phase != "run":
            self._follow("lane 0:")

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return self.world.processes[0].lanes

    def run(self, events: int) -> None:
        """Lets so many things happen, and then drains.

        Raises:
            AssertionError: The code does what the model cannot.
        """
        for _ in range(events):
            self._decide()
            self._happen()
        self.machine.drain()
        self._follow("is told to hand over")
        while not self.machine.drained:
            self._decide()
            self._happen()
        self._follow("is drained")

    def _follow(self, *words: str) -> None:
        """Takes the first step of the model whose words contain these."""
        if not self._may_follow(*words):
            raise AssertionError(f"the model cannot do {words} in {self.world}")

    def _may_follow(self, *words: str) -> bool:
        for told, after in self._model.steps(self.world):
            if all(each in told for each in words):
                self.world = after
                return True
        return False

    def _decide(self) -> None:
        self._now += _PAUSE
        for command in self.machine.decide(self._now):
            self._compare(command)

    def _compare(self, command: BatchCommand) -> None:
        if isinstance(command, Publish):
            self._publish = command
            self._may_follow("the broker completes")
            self._follow("sends")
            transaction = self.world.channels[0].transaction
            assert transaction is not None
            assert transaction.rows == tuple(record.id for record in command.records)
            assert set(transaction.checkpoint) == self._named(command.checkpoint)
        elif isinstance(command, Advance):
            self._advance = command
            limited = command.limit and self._may_follow("asks", f"to mark {command.limit} as")
            if limited or command.finished:  # the model does not ask when there is nothing to do
                if not limited:
                    self._follow("asks to purge")
                finished, wish = self._asked()
                assert set(finished) == self._named(command.finished)
                assert wish.pending == tuple(self._names[name] for name in command.pending) or not limited
                self._names[command.leader_id] = wish.name

    def _named(self, batches: list[Batch]) -> set[tuple[int, int, int]]:
        return {(self._names[batch.leader_id], batch.first, batch.last) for batch in batches}

    def _asked(self) -> tuple[tuple[tuple[int, int, int], ...], Wish]:
        advance = self._lanes[0].advance
        assert advance is not None
        _, finished, wish = advance.call.arguments
        return finished, wish

    def _happen(self) -> None:
        """Has something that is out be answered, or a row be committed."""
        may = [self._answer] * 2 if self._advance else []
        if self._publish:
            may += [self._commit, self._commit, self._abort]
        if ABSENT in self.world.database.rows:
            may.append(self._stash)
        if may:
            self._random.choice(may)()

    def _answer(self) -> None:
        rows: list[int] = []
        before = self.world.database.rows.count(GONE)
        if self._lanes[0].advance:
            _, wish = self._asked()
            self._follow("marks")
            marks = enumerate(self.world.database.rows)
            rows = [row for row, name in marks if wish.limit and name == wish.name]
        self._advance = None
        records = [MarkedRecord(row, "topic", "key", "value") for row in rows]
        self.machine.advanced(self._now, records, self.world.database.rows.count(GONE) - before)

    def _commit(self) -> None:
        self._publish = None
        self._follow("has batch")
        self.machine.published(self._now)

    def _abort(self) -> None:
        assert self._publish is not None
        culprit = self._random.choice(self._publish.records)
        self._publish = None
        self._follow("aborts")
        self.machine.aborted(self._now, [Failure(culprit, "refused", retryable=True)])

    def _stash(self) -> None:
        self._follow("is committed")
