"""What a task does: publishes its rows with a checkpoint in one transaction, or finds that it has."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Final

from outbox_api import DriverError, MarkedRecord, OutboxError
from outbox_kafka.transactional_producer import TransactionalProducer

from pyspark_outbox_kafka.ledger import (
    Entry,
    Kind,
    Ledger,
    Outcome,
    Part,
    Report,
    Step,
    check,
    compared,
    step,
    taken_over,
)
from pyspark_outbox_kafka.log import SinkLog
from pyspark_outbox_kafka.messages import Outcomes
from pyspark_outbox_kafka.sums import NO_ROWS, Sums, Tally

log = logging.getLogger("outbox.spark")

_TRY_SECONDS: Final = 30.0
"""For so long a task opens its producer again, which a sibling may end that takes over."""

_WAIT_SECONDS: Final = 60.0
"""Seconds to wait for siblings: for the one that takes over, and for those that compare."""

_LOOK_SECONDS: Final = 0.2
_AT_ONCE: Final = 16
"""How many producers of earlier runs are ended at the same time."""

Rows = Iterator[list[MarkedRecord]]


class SinkTask:
    """One attempt of a task."""

    def __init__(self, sink: SinkLog, part: Part, replaces: str | None) -> None:
        self._log = sink
        self._part = part
        self._replaces = replaces
        self._begun = False  # to take rows, which come once

    def write(self, rows: Rows) -> Report:
        """Publishes rows, or finds that they are published.

        Raises:
            DriverError: Nothing was published; or that is not known, and the next attempt finds out.
        """
        first = next(rows, None)
        if first is None:
            return Report(self._part, Outcome.KNOWN, NO_ROWS)
        rows = chain([first], rows)
        until = time.monotonic() + _TRY_SECONDS
        while True:
            try:
                return self._try(rows)
            except DriverError as error:
                if self._begun or not error.retryable or time.monotonic() > until:
                    raise
                log.info("%s: opens its producer again: %s", self._log.id, error)
            time.sleep(_LOOK_SECONDS)

    def _try(self, rows: Rows) -> Report:
        with self._log.producer(self._part.task) as producer:
            self._log.write(producer, Entry(Kind.OPENED, self._part))
            ledger = self._read()
            what = step(ledger, self._part)
            if what in (Step.PUBLISH, Step.COUNT):
                return self._write(rows, producer, ledger, what)
            if what is Step.TAKE_OVER:
                self._take_over()
        if what is Step.WAIT:
            self._wait_for_leader()  # which may have ended this producer
        return self._try(rows)

    def _read(self) -> Ledger:
        ledger = self._log.read()
        check(ledger, self._part, self._log.name, self._replaces)
        return ledger

    def _take_over(self) -> None:
        """Ends all tasks of earlier runs, and notes what they have committed of this batch."""
        with self._log.producer(None) as driver:
            earlier = self._read().others(self._part) - {self._part.task}
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(self._end, earlier))
            ledger = self._read()
            published = ledger.of_batch(Kind.PUBLISHED, self._part)
            committed = self._log.committed([each for each in published if each.part.run != self._part.run])
            standing = taken_over(ledger, self._part, committed)
            self._log.write(driver, Entry(Kind.STANDING, self._part, standing=standing))

    def _end(self, task: int) -> None:
        with self._log.producer(task):
            pass

    def _wait_for_leader(self) -> None:
        until = time.monotonic() + _WAIT_SECONDS
        while step(self._read(), self._part) is Step.WAIT:
            if time.monotonic() > until:
                raise DriverError(
                    f"the task that takes the sink '{self._log.name}' over from an earlier run has not "
                    f"done so in {_WAIT_SECONDS:.0f} s",
                    retryable=False,
                )
            time.sleep(_LOOK_SECONDS)

    def _write(self, rows: Rows, producer: TransactionalProducer, ledger: Ledger, what: Step) -> Report:
        self._begun = True
        if what is Step.COUNT:
            return Report(self._part, Outcome.WITHHELD, _counted(rows))
        standing = ledger.standing
        if standing is not None and standing.partly(self._part) and self._part.task in standing.committed:
            return self._compare(rows, producer, standing.committed[self._part.task])
        if (published := self._published(ledger)) is None:
            return self._publish(rows, producer, ledger)
        if _counted(rows) == published:
            return Report(self._part, Outcome.KNOWN, published)
        raise DriverError(
            f"task {self._part.task} of batch {self._part.batch} has published {published.count} rows, and "
            "its second attempt has others: see that the query gives the same rows for the same input (no "
            "rand(), current_timestamp() or uuid())",
            retryable=False,
        )

    def _published(self, ledger: Ledger) -> Sums | None:
        """Returns what an earlier attempt of this task has committed in this run."""
        own = [each for each in ledger.of_batch(Kind.PUBLISHED, self._part) if each.part == self._part]
        return next((each.sums for each in self._log.committed(own)), None)

    def _compare(self, rows: Rows, producer: TransactionalProducer, before: Sums) -> Report:
        """Counts rows that an earlier run has published; siblings wait for what is found."""
        sums = _counted(rows)
        self._log.write(producer, Entry(Kind.COMPARED, self._part, sums=sums))
        return Report(self._part, Outcome.KNOWN if sums == before else Outcome.WITHHELD, sums)

    def _publish(self, rows: Rows, producer: TransactionalProducer, ledger: Ledger) -> Report:
        tally, outcomes = Tally(), Outcomes(int(time.time() * 1000))
        deadline = producer.begin()
        try:
            for some in rows:
                tally.add(some)
                producer.send(some, outcomes)
                producer.poll()
                producer.wait_for_quota(deadline)
                if outcomes or time.monotonic() > deadline:
                    break
            self._delivered(producer, [], outcomes, deadline)
            sums = tally.sums
            if not self._may_commit(ledger, sums, deadline):
                producer.abort()
                with suppress(DriverError):  # others wait a little longer then
                    self._log.write(producer, Entry(Kind.WITHHELD, self._part))
                return Report(self._part, Outcome.WITHHELD, sums)
            entry = Entry(Kind.PUBLISHED, self._part, sums=sums)
            self._delivered(producer, [self._log.record(entry)], outcomes, deadline)
        except BaseException:  # an error of the query, too, and a task that is killed
            with suppress(OutboxError):
                producer.abort()
            raise
        try:
            producer.commit(deadline)
        except DriverError as error:
            self._look_up(sums, error)
        return Report(self._part, Outcome.PUBLISHED, sums)

    def _delivered(
        self,
        producer: TransactionalProducer,
        records: list[MarkedRecord],
        outcomes: Outcomes,
        deadline: float,
    ) -> None:
        """Waits until all messages are delivered."""
        failed = None if outcomes else producer.produce(records, outcomes, deadline)
        if time.monotonic() > deadline:
            raise DriverError(
                f"task {self._part.task} of batch {self._part.batch} took longer than a transaction may, "
                "and nothing of it was committed: give it fewer rows (smaller batches, more partitions), or "
                "raise kafka.transaction.timeout.ms, and transaction.max.timeout.ms of the brokers",
                retryable=False,
            )
        if failed is not None or outcomes:
            raise self._log.refused(failed, outcomes)

    def _may_commit(self, ledger: Ledger, sums: Sums, deadline: float) -> bool:
        """Returns whether rows may be published beside those that earlier runs have published of the batch.

        They may if the batch is divided as it was: if all tasks of those runs have the same rows again.
        """
        standing = ledger.standing
        if standing is None or not standing.partly(self._part) or not standing.committed:
            return True
        if standing.expected:
            return standing.expected.get(self._part.task) == sums
        until = min(time.monotonic() + _WAIT_SECONDS, deadline - _WAIT_SECONDS)
        while (same := compared(self._read(), self._part)) is None and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        return bool(same)

    def _look_up(self, sums: Sums, unknown: DriverError) -> None:
        """Looks into the log whether a transaction of unknown outcome is committed; raises if it is not."""
        with self._log.producer(self._part.task):  # ends it
            if self._published(self._log.read()) != sums:
                raise DriverError(
                    f"task {self._part.task} of batch {self._part.batch} was not committed: {unknown}",
                    retryable=True,
                )


def _counted(rows: Rows) -> Sums:
    tally = Tally()
    for some in rows:
        tally.add(some)
    return tally.sums
