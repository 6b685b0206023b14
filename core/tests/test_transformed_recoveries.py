"""Lanes that crash and begin again, with transforms, against a broker that tears transactions.

Nothing is lost or repeated. The recovery is the product's, the selection of batches is the simplest there is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from outbox_api import (
    Advanced,
    Attempt,
    Batch,
    DriverError,
    Failure,
    Fence,
    Found,
    MarkedRecord,
    Outgoing,
    Parked,
    Pause,
    TransactionalLane,
)
from outbox_core.delivery.checkpoint import encode
from outbox_core.delivery.recovery import Recovery
from outbox_core.settings import Delivery
from outbox_core.transforms.chain import Chain
from outbox_core.transforms.senders import TransformingTransactionalSender

ROWS, BATCH = 120, 8
Message = tuple[str, str, str]
"""A topic, a key and a value."""


class Splits:
    """Makes as many records of one as its value says, for two topics; ``version`` shows in what it makes."""

    def __init__(self, version: int) -> None:
        self._version = version

    def apply(self, record: Outgoing) -> list[Outgoing]:
        return [
            record._replace(topic=f"t{part % 2}", value=f"{record.id}.{part}.{self._version}")
            for part in range(int(str(record.value)))
        ]


def chain(version: int) -> Chain:
    """Returns a chain; version 0 has no transforms."""
    return Chain([("splits", Splits(version))] if version else [], str(version) if version else "")


class Broker:
    """A log, and the transactions of a lane, of which some have an unknown outcome and some are torn.

    Attributes:
        torn: Rows of torn transactions.
        apart: How many of them were committed in part.
    """

    location = "here"

    def __init__(self, chance: random.Random) -> None:
        self.log: list[Message] = []
        self.torn: set[int] = set()
        self.apart = 0
        self.calm = False
        self._chance = chance
        self._attempts: list[tuple[str, dict[Message, bool], bool]] = []  # checkpoint, fates, its own fate

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        sent = [(each.topic, each.key, str(each.value)) for each in records]
        unknown = not self.calm and self._chance.random() < 0.4
        torn = unknown and self._chance.random() < 0.5
        whole = not unknown or self._chance.random() < 0.5
        fates = {topic: self._chance.random() < 0.5 if torn else whole for topic in ("t", "t0", "t1", "")}
        self.log += [each for each in sent if fates[each[0]]]
        self._attempts.append((checkpoint, {each: fates[each[0]] for each in sent}, fates[""]))
        if torn:
            rows = {row_of(each) for each in sent}
            self.torn |= rows
            self.apart += sum(
                len({fates[each[0]] for each in sent if row_of(each) == row}) > 1 for row in rows
            )
        if unknown:
            raise DriverError("whether it was committed is unknown", retryable=True)
        return []

    def attempt(self, location: str = "") -> Attempt | None:
        assert location in ("", "here"), location
        return Attempt(self._attempts[-1][0], str(len(self._attempts) - 1)) if self._attempts else None

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        _, fates, committed = self._attempts[int(trace)]
        there = [each.id for each in records if fates.get((each.topic, each.key, str(each.value)))]
        return Found(there, committed=not records and committed)

    def close(self) -> None:
        pass


def row_of(message: Message) -> int:
    return int(message[2].partition(".")[0])


class World:
    """An outbox, which is its own table, and a lane that is opened again after each unknown outcome."""

    name = "box"

    def __init__(
        self, seed: int, sender: type[TransformingTransactionalSender], versions: Sequence[int]
    ) -> None:
        self.chance = random.Random(seed)
        self.broker = Broker(self.chance)
        self.left = {
            number: MarkedRecord(number, "t", f"k{number % 5}", self.chance.choice("01123"))
            for number in range(1, ROWS + 1)
        }
        self.wanted = dict(self.left)
        self.note: TransactionalLane | None = None
        self.table: Any = self
        self._sender, self.versions, self._version = sender, versions, versions[0]

    def run(self) -> None:
        steps = 0
        while self.left:
            steps += 1
            self.broker.calm = steps > 60  # it may repeat for long, and not for ever
            self._version = self.chance.choice(self.versions)
            try:
                opened = Recovery(1, 1, Delivery.EXACTLY_ONCE).open(self, 0)
                self._harvest(self.senders[opened.sender])
            except DriverError:
                continue

    def _harvest(self, sender: TransformingTransactionalSender) -> None:
        while batch := [self.left[number] for number in sorted(self.left)][:BATCH]:
            ids = [each.id for each in batch]
            assert sender.publish(batch, encode([], Batch.of(ids, "now"))) == []
            if self.chance.random() < 0.2:
                raise DriverError("killed before the purge", retryable=True)
            for number in ids:
                del self.left[number]

    # --- the port of a recovery -------------------------------------------------------------------------

    def open_sender(self, name: str) -> TransformingTransactionalSender:
        self.senders = {name: self._sender(self.broker, chain(self._version), lambda _: "")}
        return self.senders[name]

    def close_sender(self, name: str) -> None:
        del self.senders[name]

    def for_each(self, lanes: Sequence[int], act: Callable[..., Any]) -> list[Any]:
        raise NotImplementedError

    # --- the table ---------------------------------------------------------------------------------------

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        return Fence(lane, lanes, token, 1, "x")

    def transactional_lanes(self) -> dict[int, TransactionalLane]:
        return {0: self.note} if self.note else {}

    def set_transactional(self, fence: Fence, note: TransactionalLane) -> None:
        self.note = note

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        return [self.left[number] for number in batch.ids() if number in self.left]

    def advance(self, fence: Fence, finished: Sequence[Batch], pending: object, limit: int) -> Advanced:
        gone = [number for batch in finished for number in batch.ids() if self.left.pop(number, None)]
        return Advanced(len(gone), [])

    def parked(self) -> Parked:
        return Parked(0, None)

    def pauses(self) -> Sequence[Pause]:
        return ()


def wrong(world: World) -> list[str]:
    """Returns what is wrong with the log of a world at its end."""
    excused = world.broker.torn if len(world.versions) > 1 else set()  # another chain cannot recognise them
    found = Counter(each[2].rpartition(".")[0] if each[0] != "t" else each[2] for each in world.broker.log)
    wanted = {
        f"{row.id}.{part}": row.id for row in world.wanted.values() for part in range(int(str(row.value)))
    }
    lost = [name for name, row in wanted.items() if not found[name] and row not in excused]
    again = [name for name in wanted if found[name] > 1 and wanted[name] not in excused]
    return [*(f"lost {each}" for each in lost), *(f"again {each}" for each in again)]


def harvested(
    seed: int, versions: Sequence[int] = (1,), sender: Any = TransformingTransactionalSender
) -> World:
    world = World(seed, sender, versions)
    world.run()
    return world


@pytest.mark.parametrize("seed", range(40))
def test_crashed_and_torn_transactions_lose_and_repeat_nothing_of_what_is_made_of_rows(seed: int) -> None:
    world = harvested(seed)
    assert wrong(world) == []
    for topic in ("t0", "t1"):
        for key in {row.key for row in world.wanted.values()}:
            seen = [
                tuple(map(int, each[2].split("."))) for each in world.broker.log if each[:2] == (topic, key)
            ]
            assert seen == sorted(seen)


def test_some_rows_are_torn_apart():
    assert sum(harvested(seed).broker.apart for seed in range(40)) > 40


@pytest.mark.parametrize("seed", range(40))
def test_a_chain_that_changes_loses_and_repeats_nothing_but_of_torn_transactions(seed: int) -> None:
    world = harvested(seed, (1, 2))
    assert wrong(world) == []


class Untransformed(TransformingTransactionalSender):
    """Looks for rows as they are in the outbox."""

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        return self._sender.find(records, trace)


class FirstForAll(TransformingTransactionalSender):
    """Takes a row for published if the first that is made of it is in the log."""

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        made = [(row, list(self._chain.outputs(row))[:1]) for row in records]
        messages = [each._replace(id=0) for _, outputs in made for each in outputs]
        there = self._sender.find([MarkedRecord(n, *each[2:]) for n, each in enumerate(messages)], trace)
        rows = [row.id for row, outputs in made for _ in outputs]
        return Found(
            [rows[number] for number in there.published] + [row.id for row, outputs in made if not outputs]
        )


class Forgetful(TransformingTransactionalSender):
    """Does not remember of which rows a part is in the log."""

    def _in_log(self, messages: Sequence[MarkedRecord], numbers: Mapping[int, range]) -> set[int]:
        return set()


class Untold(TransformingTransactionalSender):
    """Remembers it until the next crash."""

    def attempt(self, location: str = "") -> Attempt | None:
        attempt = super().attempt(location)
        self.torn.read("")
        return attempt


class Unnamed(TransformingTransactionalSender):
    """Does not say by which transforms it publishes."""

    location = "here"

    def attempt(self, location: str = "") -> Attempt | None:
        return super().attempt()


@pytest.mark.parametrize(
    ("mutant", "versions", "how"),
    [
        (Untransformed, (1,), "again"),
        (FirstForAll, (1,), "lost"),
        (Forgetful, (1,), "again"),
        (Untold, (1,), "again"),
        (Unnamed, (1, 2), "again"),
    ],
)
def test_a_sender_that_is_wrong_is_found_out(mutant: Any, versions: Sequence[int], how: str) -> None:
    worlds = [harvested(seed, versions, mutant) for seed in range(20)]
    found = [each for world in worlds for each in wrong(world)]
    assert any(each.startswith(how) for each in found)
