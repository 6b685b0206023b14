"""What Spark's driver does with a source, micro-batch by micro-batch. Its tasks only hand rows on.

Before a batch runs, its end is in the offset log; after it ran, its number is in the commit log. Who starts
repeats the last batch of the offset log, from the end of the one before; or goes on with a new one if the
commit log has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from outbox_api import OutboxError
from pyspark_outbox import claim as source
from pyspark_outbox.connection import Connection
from pyspark_outbox.offsets import Offset
from pyspark_outbox.parts import Positioned

from .greenlets import step
from .recovery import Servers
from .scheduler import Host
from .spark_table import SETTINGS, SparkTable
from .trail import Session, Violation

if TYPE_CHECKING:
    from .spark_query import Query

RETRY_SECONDS = 0.1
"""The pause before a connection is made anew; shorter than the real one."""


class Driver:
    """One run of a query.

    Attributes:
        batch: The number of the batch that it is at.
        known: How many batches the offset log has, as far as it knows.
        over: Whether it has ended by itself.
    """

    def __init__(self, query: Query, *, available_now: bool) -> None:
        world = query.world
        world.runs += 1
        self.query, self.world = query, world
        self.host = Host(f"{query.name}/driver {world.runs}", world.scheduler)
        self.session = Session(0, self.host.name)
        self.session.lanes = 1
        self.over, self.batch, self.known = False, 0, 0
        self.checkpoint, self.sink = query.checkpoint, query.sink
        self._available_now = available_now
        world.tell(self, None, "starts%s", " with what is available now" if available_now else "")
        Servers(world, self.host, SETTINGS, self.session).run(self._run, self._ended)

    @property
    def replaced(self) -> bool:
        """Whether another driver of the query was started."""
        return self.query.driver is not self and self.query.driver is not None

    def _ended(self, error: OutboxError | None) -> None:
        self.over = True
        self.world.tell(self, None, "ends: %s", error or "nothing is left")
        self.world.ended(self, error)

    # --- the loop -----------------------------------------------------------------------------------

    def _run(self, _: Servers) -> None:
        query, patience = self.query, self.world.chance.choice((0.0, 1.0))
        connection = Connection(partial(self._connect, self.host), patience)
        claim = source.Claim(connection, "box", self.host.name, query.max_bytes, query.parts)
        try:
            self._batches(claim)
        except OutboxError:
            claim.close()
            raise
        claim.close()

    def _connect(self, host: Host) -> Any:
        step(lambda then: host.after(self.world.chance.random() * RETRY_SECONDS, then, None))
        return SparkTable(self.world, host, self.session)

    def _batches(self, claim: source.Claim) -> None:
        began, log, chance = self.world.scheduler.now, self.checkpoint, self.world.chance
        if self._available_now:
            claim.prepare_available_now()
        self.known = len(log.offsets)
        batch, repeats = (self.known - 1, True) if self.known > log.commits else (log.commits, False)
        start, end = log.offset(batch - 1), log.offset(batch) if repeats else None
        self._told(start)
        self.world.audit.counts["batches that were repeated"] += repeats
        while True:
            self.batch = batch
            if end is None:
                offered = claim.next(start, self.query.max_rows)
                claim.backlog()
                self._reach("has asked for batch %d", batch)
                # The first is made in any case, and others where state calls for a batch without data.
                if offered == start and batch and chance.random() < 0.9:
                    if self._available_now:
                        self.world.check_available(began)
                        return
                    step(lambda then: self.host.after(chance.random() * 0.1, then, None))
                    continue
                log.log(batch, offered)
                self.known, end = len(log.offsets), log.offset(batch)
                self.world.check_offset(self, start, end)
                self._reach("has logged batch %d", batch)
            self._execute(claim, batch, start, end)
            log.commit(batch)
            self.query.went_on(log)
            self._told(end)
            self._reach("has committed batch %d", batch)
            batch, start, end = batch + 1, end, None

    def _reach(self, text: str, *arguments: object) -> None:
        """Takes that a step is done; a crash may follow."""
        self.world.tell(self, None, text, *arguments)
        step(lambda then: self.host.after(self.world.chance.random() * 0.01, then, None))

    def _told(self, offset: Offset) -> None:
        """I8: what the commit log names may be deleted."""
        checkpoint = offset.checkpoint
        for rows in [*checkpoint.published, *([checkpoint.attempted] if checkpoint.attempted else [])]:
            self.session.trail.told.update(rows.ids())

    def _execute(self, claim: source.Claim, batch: int, start: Offset, end: Offset) -> None:
        parts = claim.parts(start, end) if end != start else []
        self._reach("has planned batch %d, in %d parts", batch, len(parts))
        whole = [row for part in parts for row in part]
        for rows in [whole] if self.query.atomic else self.world.chance.sample(parts, len(parts)):
            self._reach("writes of batch %d", batch)
            self.sink.write(self.session, batch, rows)
        self._check_whole(batch, start, end, whole)

    def _check_whole(self, batch: int, start: Offset, end: Offset, rows: Sequence[Positioned]) -> None:
        """*replay*: a batch that is to be committed has all rows that its offset names, and no others."""
        attempted = end.checkpoint.attempted if end != start else None
        ids = sorted(row.record.id for row in rows)
        if ids != (attempted.ids() if attempted else []) or {row.position for row in rows} != set(
            self.sink.batches[batch]
        ):
            raise Violation("replay", f"{self.session.name} commits batch {batch} with other rows: {ids}")
