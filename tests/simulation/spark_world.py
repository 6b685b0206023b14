"""One history of an outbox that Spark reads: its queries, and who must not come between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any

from outbox_api import MAX_CHECKPOINT, DriverError, OutboxError
from outbox_core.delivery.recovery import QUERY
from outbox_core.settings import Delivery
from pyspark_outbox.offsets import Offset

from .base_statements import names
from .checkpoints import check_published
from .faults import freeze
from .log import Publication
from .process import Process
from .scheduler import Host
from .spark_driver import Driver
from .spark_query import ConcurrentUpdate, Query
from .trail import Violation
from .world import World

REFUSALS = {
    "has raised the fence": "fenced",
    "was read by another query": "refused: another query",
    "the query is an older copy": "refused: an older copy",
    "are not in the outbox any more": "refused: rows are missing",
}
"""Which words say why a query ends, and what that is called in the report."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


class SparkWorld(World):
    """A world in which queries read the outbox, and now and then a harvester tries to.

    Attributes:
        holders: Token → who raised the fence.
        queries: The first lives as long as the history, the others for a while.
        steps_to_strike: After how many steps of drivers something happens to one.
        strike: What.
    """

    def __init__(self, *arguments: Any, fixed: Mapping[str, Any] = NOTHING, **named: Any) -> None:
        super().__init__(*arguments, fixed={**fixed, "processes": 0}, **named)
        if self.scenario.characters < MAX_CHECKPOINT:  # batches of few rows take as long as others
            self.scenario = replace(self.scenario, transactions_per_second=10.0)
        self.holders: dict[int, str] = {}
        self.steps_to_strike = 0
        self.strike: Callable[[Host], object] = Host.kill
        self.queries: list[Query] = []
        self.calm = False
        self.add_query(inf)

    def patches(self) -> Mapping[str, object]:
        """Has claim and replay live in virtual time."""
        patches = {
            "pyspark_outbox.claim.MAX_CHECKPOINT": self.scenario.characters,
            "pyspark_outbox.claim.token_hex": lambda size: self.chance.randbytes(size).hex(),
            "pyspark_outbox.claim.monotonic": lambda: self.scheduler.now,
            "pyspark_outbox.connection.monotonic": lambda: self.scheduler.now,
            "pyspark_outbox.connection.sleep": lambda _: None,  # whoever connects anew pauses
        }
        return {**patches, **super().patches()}

    @property
    def refused(self) -> bool:
        """Whether an operator is to let others read; who does so makes sure that no older copy is in use."""
        return self._refused

    @refused.setter
    def refused(self, refused: bool) -> None:
        self._refused = refused
        for query in self.queries if refused else ():
            if query.checkpoint.copied:
                query.checkpoint = query.latest
                if query.driver is not None:
                    query.driver.host.kill()

    # --- queries --------------------------------------------------------------------------------------

    def add_query(self, seconds: float) -> None:
        """Has a query with a checkpoint of its own be run, for so long."""
        query = Query(self, len(self.queries))
        self.queries.append(query)
        self._look_after(query, self.scheduler.now + seconds)

    def _look_after(self, query: Query, until: float) -> None:
        """Starts drivers as a cluster does: it takes one that stands still for lost, by and by."""
        driver, now = query.driver, self.scheduler.now
        if self.calm and query is not self._next_query():
            if driver is not None:
                driver.host.kill()
        elif now < until or self.calm:
            paused = driver is not None and driver.host.paused and self.chance.random() < 0.3
            if driver is None or driver.over or not driver.host.alive or paused:
                if self.faults["forgetting"] and query.checkpoint.copied:
                    query.checkpoint = query.latest  # who forgets a note knows which is the latest
                query.start()
        elif driver is not None:
            driver.host.kill()
        seconds = self.chance.random() * self.chance.choice((0.02, 0.5))
        self.scheduler.after(seconds, self._look_after, query, until)

    def _next_query(self) -> Query:
        """Returns the only query that runs in the calm: whose outbox it is, else the first."""
        noted = [query for query in self.queries if self._noted() == QUERY + query.checkpoint.query]
        return [*noted, self.queries[0]][0]

    def _noted(self) -> str | None:
        notes = [row.note.sender for row in self.database.fence.values() if row.note is not None]
        return notes[0] if notes else None

    def recovery_steps(self, host: Host) -> None:
        if self.steps_to_strike and host.name.startswith("query"):
            self.steps_to_strike -= 1
            if not self.steps_to_strike:
                self.strike(host)

    def freeze(self, host: Host) -> None:
        freeze(self, host, counted=True)

    def add_harvester(self) -> None:
        """Has a harvester be run for a while, and then be stopped, more or less in order."""
        chance = self.chance
        process = Process(
            self,
            0,
            chance.choice((1, 2)),
            0,
            election=self.election,
            delivery=Delivery.AT_LEAST_ONCE,  # the order of what transactions show is another's
            settings=self.scenario.settings(chance),
        )
        self.processes.append(process)
        seconds = 1.0 + chance.random() * 3
        if chance.random() < 0.7:
            process.host.after(seconds, process.give_up)
        self.scheduler.after(seconds + chance.choice((0.0, 1.5)), self._end_harvester, process)

    def _end_harvester(self, process: Process) -> None:
        process.kill()
        self.processes.clear()

    # --- how they end ---------------------------------------------------------------------------------

    def ended(self, driver: Driver, error: OutboxError | None) -> None:
        """*refused*: a query ends for a reason that there is, and says which."""
        if error is None:
            self.audit.counts["queries that ended with what was available"] += 1
            return
        if isinstance(error, ConcurrentUpdate) or (isinstance(error, DriverError) and error.retryable):
            return
        query, why = driver.query, next((why for words, why in REFUSALS.items() if words in str(error)), "")
        self.audit.counts[why] += 1
        if not self._justified(driver, error, why):
            raise Violation("refused", f"{driver.session.name} ends without a reason: {error}")
        if driver.replaced or driver.checkpoint is not query.checkpoint or why == "fenced":
            return
        if query.checkpoint is not query.latest:
            query.checkpoint = query.latest  # the operator goes on with that
        elif "missing" in why and driver.checkpoint.commits <= driver.batch:
            query.begin_anew()
            self.refused = True
        elif self._noted() not in [QUERY + each.latest.query for each in self.queries]:
            self.refused = True

    def _justified(self, driver: Driver, error: OutboxError, why: str) -> bool:
        log = driver.checkpoint
        stale = driver.replaced or driver.session.losses > 0 or len(log.offsets) > driver.known
        stale = stale or log.commits > driver.batch
        match why.rpartition(": ")[2]:
            case "fenced":
                lost = driver.session.losses > 0 or self.database.fence[0].token != driver.session.token
                return lost and f"'{driver.host.name}' has raised" not in str(error)
            case "another query":
                return stale or len(self.queries) > 1 or self.audit.counts["refused: rows are missing"] > 0
            case "an older copy":
                return stale or log.copied
            case "rows are missing":
                return stale or log.copied or self._taken_by_others(driver)
            case _:
                return False

    def _taken_by_others(self, driver: Driver) -> bool:
        """Whether all rows of the last batch that are gone were taken by others."""
        delivered = set(driver.sink.batches[driver.batch].values())
        gone = [self.audit.entries[serial] for serial in driver.checkpoint.serials.values()
                if serial not in self.database.serials]  # fmt: skip
        return all(each.skipped or each.forgiven or each.serial not in delivered for each in gone)

    # --- what is checked ------------------------------------------------------------------------------

    def check_offset(self, driver: Driver, start: Offset, end: Offset) -> None:
        """*checkpoint*: an offset names what is in the sink and still in the outbox; I10: it is bounded."""
        rows, attempted = self.database.rows, end.checkpoint.attempted
        if end == start or attempted is None:
            return
        driver.checkpoint.serials = {
            number: rows[number].serial
            for number in attempted.ids()
            if number in rows and names([attempted], rows[number])
        }
        if len(end.rows) > self.scenario.characters:
            raise Violation("I10", f"an offset has {len(end.rows)} characters")
        if not driver.session.superseded:
            publication = Publication(driver.session, 0, "")
            publication.checkpoint = end.rows
            check_published(self.database, self.audit, publication)

    def check_available(self, began: float) -> None:
        """*available*: a query that ends with what waited when it began leaves nothing of that behind."""
        if self.scenario.characters < MAX_CHECKPOINT:
            return  # it may wait for locked rows
        entries = self.audit.entries
        for row in self.database.rows.values():
            entry = entries[row.serial]
            if entry.since < began and not entry.copies and row.key not in self.audit.parked_keys:
                raise Violation("available", f"{row.serial} is left of what was available", row.key)

    def _calm_down(self) -> None:
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.calm, self.steps_to_strike = True, 0
        for query in self.queries:
            query.max_rows, query.max_bytes = 50, 100_000  # a backlog of small batches would take too long
            if query.driver is not None:
                query.driver.host.kill()
        super()._calm_down()
