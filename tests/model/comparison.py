"""Holds the model against the code: whatever the state machine decides, the model must be able to do."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from outbox_api import Advanced, Batch, Failure, MarkedRecord
from outbox_core.delivery.checkpoint import decode
from outbox_core.delivery.coalescing import Coalesce
from outbox_core.delivery.commands import Advance, Park, Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.events.stages import BatchStage
from outbox_core.settings import Failures, Limits

from .actions import action
from .lane_view import with_process
from .protocol import ExactlyOnce
from .scope import Scope, Setting
from .world import ABSENT, FREE, GONE, Batches, Lane, Selected, World

_KEYS = (0, 0, 1, 0, 0, 2, 0)
_SCOPE = Scope(
    "", (Setting(),), _KEYS, frozenset({2, 5}), (1, 2), 1, 99, frozenset({"abort", "lock", "park"})
)
_PAUSES = (0.1, 60.0)
"""Seconds that are shorter and longer than whatever the state machine waits for."""


class Comparison:
    """The state machine of a lane, and beside it the model's only lane, in a history drawn from a seed.

    Attributes:
        world: The model's state.
        machine: The code.
        locked: How many purges have found locked rows.
        parked: How many keys were parked.
        actions: Which of the model's actions the code has taken.
    """

    def __init__(self, seed: int) -> None:
        self.machine = SelectPublishPurge(Limits(max_batch_records=2), Failures(park_after=1), lambda: 0.5)
        self._model = ExactlyOnce(_SCOPE)
        self.world: World = self._model.first()
        self.locked = self.parked = 0
        self._left: Selected | None = None  # of a selection, when a part of it is published
        self.actions: set[str] = set()
        self._random = random.Random(seed)
        self._advance: Advance | None = None  # what is out
        self._park: Park | None = None
        self._publish: Publish | None = None
        self._now = 0.0
        self._follow("is elected")
        while self._lane.phase != "run":
            self._follow("lane 0:")

    @property
    def _lane(self) -> Lane:
        return self.world.processes[0].lanes[0]

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
                self.actions.add(action(told))
                self.world = after
                return True
        return False

    # --- what the machine decides -------------------------------------------------------------------

    def _decide(self) -> None:
        self._now += self._random.choice(_PAUSES)
        machine = self.machine
        machine.look(leading=True)
        if publish := machine.next_to_publish(self._now):
            self._compare(publish)
        machine.take_failed()
        if machine.database_due() <= self._now and (command := machine.next_for_database(self._now)):
            self._compare(command)

    def _compare(self, command: Publish | Advance | Coalesce | Park) -> None:
        if isinstance(command, Publish):
            self._publish = command
            self._left = self._cut(len(command.records))
            self._may_follow("the broker completes")
            self._follow("sends")
            transaction = self.world.channels[0].transaction
            assert transaction is not None
            assert transaction.rows == tuple(record.id for record in command.records)
            assert transaction.checkpoint is not None
            (published, attempted), theirs = transaction.checkpoint, decode(command.checkpoint)
            assert attempted is not None
            assert theirs.attempted is not None
            assert self._rows(published) == self._rows_of(theirs.published)
            assert self._rows((attempted,)) == self._rows_of((theirs.attempted,))
            if self._left:
                self._set(self._lane._replace(selected=self._left))
        elif isinstance(command, Park):
            self._park = command
            if self._lane.poison is None:  # it had failed for good before, behind another of its key
                self._set(self._lane._replace(poison=command.poisons[0].id))
            assert [self._lane.poison] == [poison.id for poison in command.poisons]
        elif isinstance(command, Advance):
            self._advance = command
            # The model asks for rows only where there are some.
            if not any(self._asks(command, limit) for limit in (command.limit, 0)):
                assert not self._rows_of(command.finished), f"the model cannot do {command} in {self.world}"

    def _cut(self, rows: int) -> Selected | None:
        """Has the model's lane send only so many rows of its batch; returns the others, which come next."""
        selected = self._lane.selected
        if selected is None or rows >= len(selected.rows):
            return None
        batch, chosen = selected.batch, selected.rows
        first, left = (
            Selected(batch._replace(ids=batch.ids[part]), chosen[part])
            for part in (slice(rows), slice(rows, None))
        )
        self._set(self._lane._replace(selected=first))
        return left

    def _set(self, lane: Lane) -> None:
        process = self.world.processes[0]
        self.world = with_process(self.world, 0, process._replace(lanes=(lane,)))

    def _asks(self, command: Advance, limit: int) -> bool:
        """Takes the step of the model that asks for the same."""
        for told, after in self._model.steps(self.world):
            [lane, *_] = after.processes[0].lanes or (Lane(0),)
            if self._lane.advance or not lane.advance:
                continue
            _, finished, wish = lane.advance.call.arguments
            same = self._rows(finished) == self._rows_of(command.finished) and wish.limit == limit
            if same and (not limit or self._rows(wish.pending) == self._rows_of(command.pending)):
                self.actions.add(action(told))
                self.world = after
                return True
        return False

    def _rows(self, batches: Batches) -> set[int]:
        """Returns the rows of batches that are not purged; others do not matter."""
        return self._present(row for batch in batches for row in batch.ids)

    def _rows_of(self, batches: Sequence[Batch]) -> set[int]:
        assert all(int(batch.newest) >= max(batch.ids()) for batch in batches)
        return self._present(row for batch in batches for row in batch.ids())

    def _present(self, rows: Iterable[int]) -> set[int]:
        return {row for row in rows if self.world.database.rows[row] >= FREE}

    # --- what happens -------------------------------------------------------------------------------

    def _happen(self) -> None:
        """Has something that is out be answered, or a row be committed, or a key be freed."""
        may = [self._answer] * 3 if self._advance else []
        if self._publish:
            may += [self._commit, self._commit]
            may += [self._abort] if self._lane.poison is None else []  # of several to be parked it has one
        if self._park:
            may.append(self._parked)
        if ABSENT in self.world.database.rows:
            may.append(self._stash)
        if self.world.database.parked:
            may.append(self._free)
        if may:
            self._random.choice(may)()

    def _answer(self) -> None:
        """Answers the advance; one in three times rows are locked, if it deletes any."""
        self._advance = None
        if not self._lane.advance:  # which the model did not ask for
            self.machine.advanced(self._now, Advanced(0, []))
            return
        before, vain = self.world.database.rows.count(GONE), self._lane.advance.vain
        known = len(self._lane.locked)
        if not (self._random.random() < 1 / 3 and self._may_follow("but for", "selects")):
            self._follow("selects")
        selected = self._lane.selected
        # What is selected in vain must be ignored, whatever it is.
        rows = tuple(self._present(range(len(_KEYS)))) if vain else selected.rows if selected else ()
        records = [MarkedRecord(row, "topic", str(_KEYS[row]), "value") for row in rows]
        locked = [Batch.of(each.ids, str(each.newest)) for each in self._lane.locked[known:]]
        self.locked += len(locked)
        purged = self.world.database.rows.count(GONE) - before
        self.machine.advanced(self._now, Advanced(purged, records, str(max(rows, default="")), locked))

    def _commit(self) -> None:
        self._publish = None
        self._follow("has rows", "committed")
        self.machine.published(self._now)

    def _abort(self) -> None:
        assert self._publish is not None
        records, self._publish = self._publish.records, None
        culprit = self._random.choice(records)
        retryable = self._random.random() < 0.5
        first = next(record for record in records if record.key == culprit.key)
        self.machine.aborted(self._now, [Failure(culprit, "refused", retryable=retryable)])
        selected = [batch for batch, stage in self.machine.batches() if stage is BatchStage.SELECTED]
        on = f"and goes on with {f'rows {selected[0].ids()}' if selected else 'nothing'}"
        self._join()
        if first == culprit and not retryable:
            self._follow("aborts", f"because of row {culprit.id},", on)
        else:
            self._follow("aborts", "because of a record", on)

    def _join(self) -> None:
        """Has the model's lane publish what is left of the selection, too: some of it may go on."""
        lane, left = self._lane, self._left
        if left and lane.selected == left and lane.publishing:
            batch, rows = lane.publishing
            batch = batch._replace(ids=(*batch.ids, *left.batch.ids))
            self._set(lane._replace(publishing=Selected(batch, (*rows, *left.rows)), selected=None))

    def _parked(self) -> None:
        self._park = None
        self.parked += 1
        self._follow("parks")
        self.machine.parked(self._now, 1)

    def _free(self) -> None:
        self._follow("is freed")

    def _stash(self) -> None:
        self._follow("is committed")
