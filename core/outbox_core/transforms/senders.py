"""Senders that publish what a chain of transforms makes of each row, and report the row."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import inf
from time import monotonic

from outbox_api import (
    Attempt,
    Deliveries,
    Failure,
    Found,
    MarkedRecord,
    OutboxError,
    Outgoing,
    Sender,
    TransactionalSender,
    TransformError,
)

from outbox_core.transforms.chain import Chain, without_values
from outbox_core.transforms.torn import TornRows

log = logging.getLogger("outbox.transforms")

_MARK = " transforms "
"""Between the place of a checkpoint and the fingerprint of the transforms."""

STORING_SECONDS = 0.1
"""How long a sender goes on with rows of which something is stored, before it looks for deliveries."""
BATCH_SECONDS = 5.0
"""How long storing for one transaction may take: a leader that commits nothing for 30 s hands over."""

Refusal = Callable[[str], str]
"""Returns why nothing may be published to a topic; empty if it may."""
_Unsent = tuple[MarkedRecord, deque[Outgoing]]
"""A row, and what of all that is made of it was not sent yet."""


def _permitted(chain: Chain, row: MarkedRecord, refusal: Refusal, *, stores: bool) -> Sequence[Outgoing]:
    """Returns what is published instead of a row; see :meth:`Chain.outputs`."""
    outputs = chain.outputs(row, stores=stores)
    for output in outputs:
        if output.topic != row.topic and (refused := refusal(output.topic)):
            raise TransformError(f"after its transforms, {refused}")
    return outputs


def _message(number: int, output: Outgoing) -> MarkedRecord:
    _, _, topic, key, value, headers, partition, timestamp_ms = output
    return MarkedRecord(number, topic, key, value, headers, partition, timestamp_ms)


class TransformingSender:
    """A :class:`outbox_api.Sender` of rows; as lanes do, its caller has one row of a key in flight at most.

    What is made of one row is sent one by one: the next once the one before is acknowledged, so that their
    order holds whatever fails. The row is delivered with the last, and failed with the first that fails.
    Nothing more of a row is sent without ``leading``. Closing it closes the sender below.

    If transforms store something, the rows that were handed over wait their turn: each poll goes on for a
    moment only, so that deliveries are reported and the lease is heeded however slow the store is.
    """

    def __init__(self, sender: Sender, chain: Chain, refusal: Refusal, leading: Callable[[], bool]) -> None:
        self._sender = sender
        self._chain = chain
        self._refusal = refusal
        self._leading = leading
        self._numbers = count()
        self._rows: dict[int, _Unsent] = {}  # by the number of what is sent
        self._waiting: deque[MarkedRecord] = deque()  # rows that were handed over, and not transformed yet
        self._reports = Deliveries()

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Transforms rows, and sends the first of what is made of each; see the contract."""
        self._waiting += records
        self._send(self._begun())

    def poll(self, timeout: float) -> Deliveries:
        """Reports rows, and sends what follows of those that have more; see the contract."""
        is_due = bool(self._waiting or self._reports.delivered or self._reports.failed)
        self._send(self._settle(self._sender.poll(0.0 if is_due else timeout)) + self._begun())
        return self._take_reports()

    def close(self, timeout: float) -> Deliveries:
        """Closes the sender; a row of which more was to be sent has an unknown outcome."""
        self._settle(self._sender.close(timeout))
        return self._take_reports()

    def _begun(self) -> list[_Unsent]:
        """Transforms rows that wait; returns those of which something is to be sent."""
        begun: list[_Unsent] = []
        end = monotonic() + STORING_SECONDS if self._chain.stores else inf
        while self._waiting and monotonic() < end:
            row = self._waiting.popleft()
            try:
                outputs = deque(_permitted(self._chain, row, self._refusal, stores=True))
            except TransformError as error:
                self._reports.failed.append(Failure(row, str(error), retryable=error.retryable))
                continue
            if outputs:
                begun.append((row, outputs))
            else:
                self._reports.delivered.append(row)
        return begun

    def _send(self, unsent: list[_Unsent]) -> None:
        """Sends the next of what is made of rows."""
        if unsent and self._leading():
            self._sender.send([self._next(row, rest) for row, rest in unsent])
        elif unsent:
            reason = "the lease ended before all that is made of it was sent"
            self._reports.failed += [Failure(row, reason, retryable=True) for row, _ in unsent]

    def _next(self, row: MarkedRecord, rest: deque[Outgoing]) -> MarkedRecord:
        number = next(self._numbers)
        self._rows[number] = row, rest
        return _message(number, rest.popleft())

    def _settle(self, deliveries: Deliveries) -> list[_Unsent]:
        """Notes what has become of rows; returns those of which more is to be sent."""
        unfinished: list[_Unsent] = []
        for sent in deliveries.delivered:
            row, rest = self._rows.pop(sent.id)
            if rest:
                unfinished.append((row, rest))
            else:
                self._reports.delivered.append(row)
        for failure in deliveries.failed:
            row, _ = self._rows.pop(failure.record.id)
            self._reports.failed.append(replace(failure, record=row))
        return unfinished

    def _take_reports(self) -> Deliveries:
        reports, self._reports = self._reports, Deliveries()
        return reports


class TransformingTransactionalSender:
    """A :class:`outbox_api.TransactionalSender` of rows; without transforms it passes everything on.

    The place of a checkpoint names the transforms, too. Lanes note the place, durably, before they publish
    anything; so whoever looks for an attempt learns here how its rows were transformed. Rows that would be
    transformed otherwise now cannot be recognised in the log.
    """

    def __init__(
        self, sender: TransactionalSender, chain: Chain, refusal: Refusal, torn: TornRows | None = None
    ) -> None:
        self._sender = sender
        self._chain = chain
        self._refusal = refusal
        self.torn = TornRows() if torn is None else torn
        """These rows. While there are any, checkpoints carry them, and must be found by the next holder."""
        self._former = chain.fingerprint  # of the transforms of the attempt
        self._stored: dict[int, MarkedRecord] = {}  # for a transaction that took long, and is tried again

    @property
    def below(self) -> TransactionalSender:
        """What publishes."""
        return self._sender

    @property
    def location(self) -> str:
        """Where the checkpoint is kept, and by which transforms."""
        place = self._sender.location
        return f"{place}{_MARK}{self._chain.fingerprint}" if self._chain else place

    def attempt(self, location: str = "") -> Attempt | None:
        """Reads the last attempt, and remembers its transforms."""
        place, _, former = location.partition(_MARK)
        self._former = former if location else self._chain.fingerprint
        attempt = self._sender.attempt(place)
        return attempt and attempt._replace(checkpoint=self.torn.read(attempt.checkpoint))

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        """Looks for rows in the log: those are published of which everything is.

        A row of which only a part is there is not published, as when the broker has torn the transaction
        between two topics: the next one publishes the rest. One of which nothing is made is published if all
        others are.
        """
        if self._former != self._chain.fingerprint:
            committed = self._sender.find((), trace).committed
            reason = "its transforms were others than now"
            return Found((), [row.id for row in records], committed, reason)
        if not self._chain:
            return self._sender.find(records, trace)
        # What fails was never published.
        messages, numbers, _ = self._made(records, lambda _: "", stores=False)
        in_log = self._in_log(messages, numbers)  # so the attempt left it out; others of it may be equal
        found = self._sender.find([each for each in messages if each.id not in in_log], trace)
        certain = in_log.union(found.published)
        possible = {*certain, *found.undecided}
        others = {row: its for row, its in numbers.items() if not certain.issuperset(its)}
        undecided = [row for row, its in others.items() if possible.issuperset(its)]
        complete = len(undecided) == len(records) - len(numbers) + len(others)
        published = [row for row, its in numbers.items() if row not in others and (its or complete)]
        self.torn.forget(published)
        self.torn.add(trace, [row for row, its in others.items() if certain.intersection(its)])
        return found._replace(published=published, undecided=undecided)

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        """Publishes what is made of rows; fails without a transaction if a row cannot be transformed.

        An error that nobody expects is a row's: it fails the row in the middle, before which the next batch
        ends. So such a row is soon alone in its batch, and fails for good.
        """
        try:
            return self._publish(records, checkpoint)
        except OutboxError:
            raise
        except Exception as error:
            if not records:
                raise
            suspect = records[len(records) // 2]
            reason = f"the publisher raised {without_values(error)}"
            log.warning("%s for %d rows; looks for the row at fault", reason, len(records))
            return [Failure(suspect, reason, retryable=len(records) > 1, suspect=True)]

    def _publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        if not self._chain:
            self.torn.read("")  # rows are published as they are, whatever of them was torn before
            return self._sender.publish(records, checkpoint)
        messages, numbers, failures = self._made(records, self._refusal, stores=True)
        if failures:
            return list(failures.values())
        if in_log := self._in_log(messages, numbers):
            messages = [message for message in messages if message.id not in in_log]
        failed = self._sender.publish(messages, self.torn.written(checkpoint))
        if not failed:
            self.torn.forget(numbers)
            return []
        rows = {number: row for row in records for number in numbers[row.id]}
        return [replace(failure, record=rows[failure.record.id]) for failure in failed]

    def close(self) -> None:
        """Closes the sender."""
        self._sender.close()

    def _made(
        self, rows: Sequence[MarkedRecord], refusal: Refusal, *, stores: bool
    ) -> tuple[list[MarkedRecord], dict[int, range], dict[str, Failure]]:
        """Transforms rows, see :meth:`Chain.outputs`.

        If storing takes too long, it ends, and the next batch before this row: it is stored by then.

        Returns:
            What is published instead, numbered by its place; the numbers of each row that can be transformed,
            by its id; and of those that cannot, the first of each key.
        """
        messages: list[MarkedRecord] = []
        numbers: dict[int, range] = {}
        failures: dict[str, Failure] = {}
        end = monotonic() + BATCH_SECONDS if stores and self._chain.stores else inf
        for place, row in enumerate(rows):
            if place and monotonic() > end:
                reason = "what is stored for its transaction takes long; those before it are published first"
                late = Failure(row, reason, retryable=True, suspect=True, innocent=True)
                failures.setdefault(row.key, late)
                self._stored = {row.id: row for row in rows[:place]}
                break
            is_stored = stores and self._stored.pop(row.id, None) is row
            try:
                outputs = _permitted(self._chain, row, refusal, stores=stores and not is_stored)
            except TransformError as error:
                failures.setdefault(row.key, Failure(row, str(error), retryable=error.retryable))
                continue
            numbers[row.id] = range(len(messages), len(messages) + len(outputs))
            messages += map(_message, numbers[row.id], outputs)
        return messages, numbers, failures

    def _in_log(self, messages: Sequence[MarkedRecord], numbers: Mapping[int, range]) -> set[int]:
        """Returns the numbers of messages of torn rows that earlier transactions have committed."""
        found: set[int] = set()
        for trace, rows in self.torn.among(numbers):
            its = {number for row in rows for number in numbers[row]} - found  # what later attempts had
            found.update(self._sender.find([messages[number] for number in sorted(its)], trace).published)
        return found
