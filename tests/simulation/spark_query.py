"""What of a query of Spark outlives its drivers: its logs, which take each number once, and its sink."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outbox_api import OutboxError
from pyspark_outbox.offsets import Offset
from pyspark_outbox.parts import Positioned

from .spark_driver import Driver
from .trail import Session, Violation, serial_of

if TYPE_CHECKING:
    from .spark_world import SparkWorld


class ConcurrentUpdate(OutboxError):  # noqa: N818 - so Spark calls it
    """A log has this number already."""


@dataclass
class Checkpoint:
    """The logs of a query.

    Attributes:
        offsets: The offset log, by the numbers of the batches.
        commits: How many of these the commit log has.
        serials: Id → serial, for rows of the last batch that are there when it is logged; none in a copy.
        copied: Whether it is an older copy of another.
    """

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    serials: dict[int, int] = field(default_factory=dict)
    copied: bool = False

    def offset(self, batch: int) -> Offset:
        """Returns where a batch ends; the one before the first ends where the stream begins."""
        return Offset.of(json.loads(self.offsets[batch])) if batch >= 0 else Offset()

    def log(self, batch: int, end: Offset) -> None:
        if len(self.offsets) != batch:
            raise ConcurrentUpdate(f"batch {batch} has an offset")
        self.offsets.append(json.dumps(end.written()))

    def commit(self, batch: int) -> None:
        if self.commits != batch:
            raise ConcurrentUpdate(f"batch {batch} is committed")
        self.commits += 1

    @property
    def query(self) -> str:
        """The digits by which the stream is noted at the fence."""
        return self.offset(len(self.offsets) - 1).query


class Sink:
    """Keeps what was written by the batch's number and the position: a batch may be written again.

    Attributes:
        batches: Number → position → serial.
    """

    def __init__(self, world: SparkWorld) -> None:
        self.batches: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._world = world
        self._last: dict[str, int] = {}

    def write(self, session: Session, batch: int, rows: Sequence[Positioned]) -> None:
        """*replay* and *position*, and all that the audit demands of what reaches a reader."""
        audit, written = self._world.audit, self.batches[batch]
        for row in rows:
            position, serial = row.position, serial_of(row.record)
            key = row.record.key
            assert position is not None
            if written.get(position, serial) != serial:
                text = f"{session.name} repeats {written[position]} in batch {batch} as {serial}"
                raise Violation("replay", text, key)
            if position in written:
                continue
            if position <= self._last.get(key, -1):
                text = f"{session.name} delivers {serial} of key {key!r} with a position not above the last"
                raise Violation("position", text, key)
            written[position], self._last[key] = serial, position
            audit.published(session, row.record)
            audit.committed_copy(session, serial)
            audit.seen(session, serial, stale=False, now=self._world.scheduler.now)
            self._world.tell(None, key, "the sink has %d, at %d of batch %d", serial, position, batch)


class Query:
    """What of a query outlives its drivers.

    Attributes:
        checkpoint: Its logs.
        latest: The same, unless an older copy is tried.
        sink: Where it writes to.
        driver: The latest driver.
    """

    def __init__(self, world: SparkWorld, number: int) -> None:
        self.world = world
        self.name = f"query {number}"
        chance = world.chance
        self.max_rows: int = world.scenario.limits.max_batch_records
        self.max_bytes: int = world.scenario.limits.max_lane_bytes
        self.parts: int = chance.choice((1, 2, 3))
        self.atomic = chance.random() < 0.5
        self.driver: Driver | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Takes a new checkpoint, and a new place for the sink."""
        self.checkpoint = self.latest = Checkpoint()
        self.sink = Sink(self.world)

    def start(self) -> None:
        """Starts a driver, whatever has become of the one before."""
        self.driver = Driver(self, available_now=self.world.chance.random() < 0.3)

    def copy_older(self) -> None:
        """Puts an older copy in the place of the checkpoint: of a batch that was under way, or over."""
        whole, chance = self.latest, self.world.chance
        batches = range(max(0, whole.commits - 4), whole.commits)
        if full := [batch for batch in batches if whole.offset(batch) != whole.offset(batch - 1)]:
            batch = chance.choice(full)
            is_over = batch < full[-1] and chance.random() < 0.5
            self.checkpoint = Checkpoint(whole.offsets[: batch + 1], batch + is_over, copied=True)

    def went_on(self, checkpoint: Checkpoint) -> None:
        """Takes that a copy has committed a batch: it is as good as what it was copied from."""
        checkpoint.copied = False
        if checkpoint is self.checkpoint:
            self.latest = checkpoint
