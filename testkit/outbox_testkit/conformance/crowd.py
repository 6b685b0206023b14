"""Writers, harvesters and operators that work on one outbox at the same time."""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from time import sleep
from typing import NamedTuple, TypeVar
from uuid import UUID

from outbox_api import UNBOUNDED, Batch, Capability, DriverError, Fence, LeadershipLost, MarkedRecord, Poison

from outbox_testkit.conformance.under_test import Box, Hand, plain, texts

KEYS = 5
PATIENCE = 60
"""Seconds after which something that has not ended has failed."""

TRIES = 50
"""How often an outcome may be unknown, for instance after a deadlock."""

Done = TypeVar("Done")


class Written(NamedTuple):
    """A record that was committed, and when its transaction began and ended, in ticks."""

    key: str
    began: int
    ended: int


class Writers:
    """Applications that stash, wait, and commit or roll back, each a fixed number of times.

    Attributes:
        committed: Value → the committed record.
    """

    def __init__(self, box: Box, transactions: int = 50, seed: int = 1) -> None:
        self.committed: dict[str, Written] = {}
        self._box = box
        self._tick = itertools.count()
        self._together = Capability.CONCURRENT_WRITERS in box.dialect.capabilities
        threads = 4 if self._together else 1
        self._pool = ThreadPoolExecutor(threads)
        self._running = [
            self._pool.submit(self._run, f"{seed}.{number}", transactions * 4 // threads)
            for number in range(threads)
        ]

    @property
    def busy(self) -> bool:
        return not all(running.done() for running in self._running)

    def wait(self) -> None:
        """Waits until all have ended; raises the error of any of them."""
        for running in self._running:
            running.result(PATIENCE)
        self._pool.shutdown()

    def _run(self, name: str, transactions: int) -> None:
        dice = random.Random(name)
        with closing(self._box.dialect.stash_connection()) as connection:
            for number in range(transactions):
                began = next(self._tick)
                records = [
                    plain(f"k{dice.randrange(KEYS)}", f"{name}.{number}.{place}")
                    for place in range(dice.randint(1, 3))
                ]
                for record in records:
                    self._box.stasher.stash(connection, record)
                    # If writers exclude each other, a slow one would only delay the others.
                    self._dawdle(dice if self._together else None)
                if dice.random() < 0.15:
                    connection.rollback()
                    continue
                connection.commit()
                ended = next(self._tick)
                for record in records:
                    self.committed[str(record.value)] = Written(record.key, began, ended)
                self._dawdle(dice)

    @staticmethod
    def _dawdle(dice: random.Random | None) -> None:
        if dice:
            sleep(dice.choice([0, 0, 0.001, 0.01]))


class Harvester:
    """A leader of one lane that marks and purges until it is told to stop or is fenced.

    Attributes:
        sent: The rows that it marked or selected, in order; anew after each unknown outcome.
        purged: The values of the rows that it purged, as far as it knows.
    """

    def __init__(self, box: Box, hand: Hand, *, batches: bool = False) -> None:
        self.sent: list[list[MarkedRecord]] = [[]]
        self.purged: list[str] = []
        self.stop = threading.Event()
        self._box = box
        self._hand = hand
        self._batches = batches
        self._finished: list[Batch] = []

    def run(self) -> None:
        """Works until it is told to stop and nothing is left, or until it is fenced."""
        with suppress(LeadershipLost):
            while True:
                last = self.stop.is_set()
                if not self._step():
                    if last:
                        return
                    sleep(0.003)

    def _step(self) -> bool:
        """Marks and purges once; returns whether there was anything to do."""
        try:
            return self._advance() if self._batches else self._mark()
        except DriverError as error:
            may_pass(error)
            # The outcome is unknown: connect again, and mark under a new leader id.
            self._hand = Hand(self._box.connect(), self._hand.fence)
            self.sent.append([])
            if len(self.sent) > TRIES:
                raise
            return True

    def _mark(self) -> bool:
        records = self._hand.mark(7)
        self.sent[-1] += records
        if records:
            count = self._hand.purge(*(record.id for record in records))
            if count < len(records):
                self._hand.mark(1)
                raise AssertionError("rows were taken from a leader that is not fenced")
            self.purged += texts(records)
        return bool(records)

    def _advance(self) -> bool:
        records = self._hand.advance(7, finished=self._finished)
        self.sent[-1] += records
        self._finished = [self._hand.last()] if records else []
        return bool(records)


class Insistent(Hand):
    """A leader of the only lane that repeats, on a new connection, what has an unknown outcome."""

    def __init__(self, box: Box) -> None:
        super().__init__(box.connect(), Fence(0, 1, 0, 0))
        self._box = box

    def lead(self) -> None:
        """Becomes the leader."""

        def act() -> Fence:
            return self.table.enter(0, 1, self.table.bump(1, "insistent"))

        self.fence = self._insist(act)

    def mark(
        self,
        limit: int = 1000,
        *,
        max_bytes: int = UNBOUNDED,
        excluded: Collection[str] = (),
        source: int = 0,
        topics: Collection[str] = (),
    ) -> list[MarkedRecord]:
        """Marks, each time under a new leader id."""

        def act() -> list[MarkedRecord]:
            self.remark()
            return self.table.mark(self.fence, self.leader, limit, max_bytes, excluded, source, topics)

        return self._insist(act)

    def purge(self, *ids: int, leader: UUID | None = None) -> int:
        return self._insist(lambda: self.table.purge(self.fence, leader or self.leader, ids).rows)

    def reset(self, *ids: int, leader: UUID | None = None) -> int:
        return self._insist(lambda: self.table.reset(self.fence, leader or self.leader, ids).rows)

    def park(self, ids: Sequence[int], *heads: int, reason: str = "too large") -> int:
        poisons = [Poison(head, reason, 5) for head in heads]
        return self._insist(lambda: self.table.park(self.fence, self.leader, poisons, ids).rows)

    def _insist(self, act: Callable[[], Done]) -> Done:
        def attempt() -> Done:
            try:
                return act()
            except DriverError:
                self.table = self._box.connect()
                raise

        return persist(attempt)


class Operator:
    """Retries, skips and redrives all dead letters, until it is told to stop.

    Attributes:
        skipped: The values of the records that it skipped; these return with other ids.
        done: Verb → how many letters it changed.
    """

    def __init__(self, box: Box) -> None:
        self.skipped: set[str] = set()
        self.done: dict[str, int] = defaultdict(int)
        self.stop = threading.Event()
        self._box = box
        self._letters = box.dead_letters()
        self._dice = random.Random(7)

    def run(self) -> None:
        while not self.stop.wait(0.002):
            try:
                self._step()
            except DriverError as error:
                may_pass(error)
                self._letters = self._box.dead_letters()

    def _step(self) -> None:
        chosen = [letter.record for letter in self._letters.find() if self._dice.random() < 0.5]
        verb = self._dice.choice(["retry", "retry", "skip", "redrive"])
        self.skipped.update(texts(chosen) if verb == "skip" else ())
        changed = getattr(self._letters, verb)([record.id for record in chosen])
        self.done[verb] += len(changed)


def assert_causes_come_first(committed: dict[str, Written], seen: Iterable[str]) -> None:
    """Checks the order of each key: a transaction that ended before another began comes first."""
    place = {value: index for index, value in enumerate(seen)}
    for key in {written.key for written in committed.values()}:
        rows = [
            (written.began, written.ended, place[value])
            for value, written in committed.items()
            if written.key == key and value in place
        ]
        causes = sorted((ended, index) for _, ended, index in rows)
        latest = -1
        for began, _, effect in sorted(rows):
            while causes and causes[0][0] < began:
                latest = max(latest, causes.pop(0)[1])
            assert effect > latest, f"a record of {key} came before one that it followed"


def assert_same_values(found: Collection[str], wanted: Collection[str]) -> None:
    """Checks that each value occurs once, and no other value."""
    assert sorted(found) == sorted(wanted)


def may_pass(error: DriverError) -> None:
    """Raises an error that a retry cannot cure."""
    if not error.retryable:
        raise error


def together(*running: Future[None]) -> None:
    """Waits for all; raises the error of any of them."""
    for each in running:
        each.result(PATIENCE)


def persist(act: Callable[[], Done]) -> Done:
    """Calls a function, and repeats it while its outcome is unknown."""
    for _ in range(TRIES):
        try:
            return act()
        except DriverError as error:
            may_pass(error)
    return act()
