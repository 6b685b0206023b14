"""Worlds in which lanes transform: the product's senders stand between lanes and producers, in both modes.

Of each row none, one or several messages are made. The last of them stands for the row: it alone is a copy of
it, for readers and the audit. So a row is purged undelivered if it counts as delivered with any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from greenlet import greenlet
from outbox_api import Attempt, Deliveries, DriverError, Failure, Found, MarkedRecord, Outgoing
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.transforms.chain import Chain
from outbox_core.transforms.senders import _MARK, TransformingSender, TransformingTransactionalSender

from .broker import Broker, Packet, Producer
from .greenlets import step
from .mutant import Mutant, under
from .requests import TIMED_OUT, Reply
from .scenario import PLACES, Mode, Parts
from .scheduler import Host
from .sender import UNKNOWN, Outcome, TransactionalProducer
from .torn_mutants import TEARING
from .trail import Session, Violation, serial_of

MOST = 3


def messages_of(serial: int) -> int:
    """Returns how many messages are made of a record."""
    return serial * 7 % (MOST + 1)


def is_dropped(serial: int) -> bool:
    """Returns whether nothing is made of a record."""
    return not messages_of(serial)


class Splits:
    """Makes messages; the ``partition`` tells them from each other, and the last has none.

    Those of a key are equal, and do not change when an operator changes a row that cannot be sent.

    Args:
        apart: How far their partitions are from each other; all are the same for as many as there are.
    """

    def __init__(self, apart: int) -> None:
        self._apart = apart

    def apply(self, record: Outgoing) -> list[Outgoing]:
        number = messages_of(record.timestamp_ms or 0)
        parts = [
            record._replace(partition=part * self._apart, value=f"v/{part}") for part in range(1, number)
        ]
        return [*parts, record._replace(value="v")] if number else []


CHAIN = Chain([("splits", Splits(apart=3))], "splits")
SPREAD = Chain([("splits", Splits(apart=1))], "splits")


def _permitted(_: str) -> str:
    return ""


# --- single records ---------------------------------------------------------------------------------------


class SplitProducer(Producer):
    """A producer of rows."""

    sender: Callable[..., TransformingSender] = TransformingSender
    has_runs = False

    def __init__(self, broker: Broker, host: Host, lane: int, name: str, receiver: Any) -> None:
        super().__init__(broker, host, lane, name, receiver)
        self.leading: Callable[[], bool] = receiver.leading
        self.reports = Deliveries()
        self._rows = self.sender(_Client(self), CHAIN, _permitted, self.leading)

    def send(self, records: Sequence[MarkedRecord]) -> None:
        for record in records:
            self._broker.audit.sent(self, record.id, record.key)
            self._broker.audit.published(self, record)
        self._rows.send(records)
        self._host.after(0.0, self._tell)

    def _append(self, partition: int, record: MarkedRecord, *, stale: bool) -> None:
        if record.partition is None:
            self._broker.log.append(partition, self, serial_of(record), stale=stale)

    def _acknowledge(self, packet: Packet) -> None:
        self.reports.delivered.append(packet.record)
        self._tell()

    def _fail(self, record: MarkedRecord, reason: str, retryable: bool) -> None:
        self.reports.failed.append(Failure(record, reason, retryable))
        self._tell()

    def _tell(self) -> None:
        """Tells the lane what became of rows."""
        if self.closed_at != float("inf"):
            return
        deliveries, audit = self._rows.poll(0.0), self._broker.audit
        for record in deliveries.delivered:
            audit.reported(self, record.id, record.key, delivered=True)
            self.receiver.delivered(record)
        for failure in deliveries.failed:
            audit.reported(self, failure.record.id, failure.record.key, delivered=False)
            self.receiver.undelivered(failure)


class _Client:
    """What the product's sender sends messages with. I11: none is sent once the lease has ended."""

    def __init__(self, producer: SplitProducer) -> None:
        self._producer = producer

    def send(self, records: Sequence[MarkedRecord]) -> None:
        for record in records:
            if not self._producer.leading():
                text = f"{self._producer.name} sends on, and its lease has ended"
                raise Violation("I11", text, record.key, self._producer.lane)
            self._producer._send(record)

    def poll(self, timeout: float) -> Deliveries:
        reports, self._producer.reports = self._producer.reports, Deliveries()
        return reports

    def close(self, timeout: float) -> Deliveries:
        return Deliveries()


# --- transactions -----------------------------------------------------------------------------------------


class SplitTransactionalProducer(TransactionalProducer):
    """A transactional producer of rows. The product's sender runs on a greenlet, as recoveries do."""

    rows: Callable[..., TransformingTransactionalSender] = TransformingTransactionalSender
    chain = CHAIN

    def __init__(self, broker: Broker, host: Host, session: Session, name: str, location: str) -> None:
        super().__init__(broker, host, session, name, location)
        self._rows = self.rows(_TransactionalClient(self), self.chain, _permitted, session.torn)

    def attempt(self, location: str, then: Reply) -> None:
        _run(lambda: self._rows.attempt(f"{location}{_MARK}{self.chain.fingerprint}"), then)

    def find(self, records: Sequence[MarkedRecord], trace: str, then: Reply) -> None:
        _run(lambda: self._rows.find(records, trace), then)

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str, then: Outcome) -> None:
        _run(lambda: self._rows.publish(records, checkpoint), then)


class _TransactionalClient:
    """What the product's sender publishes messages with."""

    def __init__(self, producer: SplitTransactionalProducer) -> None:
        self._producer = producer

    @property
    def location(self) -> str:
        return self._producer.location

    def attempt(self, location: str) -> Attempt | None:
        attempt: Attempt | None = step(partial(TransactionalProducer.attempt, self._producer, location))
        return attempt

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        found: Found = step(partial(TransactionalProducer.find, self._producer, records, trace))
        return found

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        failures: list[Failure] = step(
            partial(TransactionalProducer.publish, self._producer, records, checkpoint)
        )
        return failures


def _run(act: Callable[[], Any], then: Callable[[Any], None]) -> None:
    """Calls the product's code, which waits for replies; tells what it returned, or which reply ended it."""
    thread = greenlet(act)

    def go_on(reply: Any) -> None:
        if reply is TIMED_OUT or reply is UNKNOWN:
            try:
                thread.throw(DriverError(str(reply), retryable=True))
            except DriverError:
                then(reply)
            return
        _wait(thread.switch(reply))

    def _wait(action: Any) -> None:
        if thread.dead:
            then(action)
        else:
            action(go_on)

    _wait(thread.switch())


# --- worlds and mutants -----------------------------------------------------------------------------------

SPLIT = {"producer": SplitProducer, "batch_producer": SplitTransactionalProducer, "is_dropped": is_dropped}


class SpreadProducer(SplitTransactionalProducer):
    """One whose messages of a row are in several partitions, which the broker may tear apart."""

    chain = SPREAD


def _breaks(name: str, says: str, invariants: str, mode: Mode, **parts: Any) -> Mutant:
    return Mutant(name, says, frozenset(invariants.split()), 40, Parts(**{**SPLIT, **parts}), mode=mode)


REPEATED: Mapping[str, Any] = {"repeated": 0.1, "replaced": 0.3, "unready": 0.3}
"""What happens besides where the broker tears transactions."""

TRANSFORMED: Sequence[Mutant] = (
    *(
        _breaks(f"transformed-{mode}", "Nothing: lanes transform.", "", mode)
        for mode in (Mode.AT_LEAST_ONCE, Mode.EXACTLY_ONCE, Mode.SWITCHING)
    ),
    under("crashes, handovers", **TEARING, **REPEATED, tables=("public.box",), each=_breaks(
        "transformed-torn", "Nothing: what is made of one row is torn.", "", Mode.EXACTLY_ONCE,
        batch_producer=SpreadProducer)),
)  # fmt: skip
"""Worlds without a bug."""


PASSED_ON = {
    **TEARING, "torn": 0.5, "processes": 3, "lanes": (1, 1, 1), "workers": (0, 0, 0), "seconds": 16.0,
    "places": PLACES, "tables": ("public.box",),
}  # fmt: skip
"""A world in which a lane goes often from one process to another that keeps checkpoints elsewhere."""


class ReportedWithItsFirst(TransformingSender):
    def _settle(self, deliveries: Deliveries) -> Any:
        for row, _ in super()._settle(deliveries):
            self._reports.delivered.append(row)
        return []


class LeaseUnlooked(TransformingSender):
    def __init__(self, sender: Any, chain: Chain, refusal: Callable[[str], str], _: object) -> None:
        super().__init__(sender, chain, refusal, lambda: True)


class Untransformed(TransformingTransactionalSender):
    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        return self._sender.find([each._replace(value="as it is") for each in records], trace)


class Farewell(ExactlyOnceLane):
    def __init__(self, *arguments: Any, torn: object, **named: Any) -> None:
        super().__init__(*arguments, **named)


class Forgetful(TransformingTransactionalSender):
    def _in_log(self, messages: Sequence[MarkedRecord], numbers: Mapping[int, range]) -> set[int]:
        return set()


TRANSFORMED_MUTANTS: Sequence[Mutant] = (
    _breaks(
        "reported-with-its-first", "A row is delivered with the first that is made of it.", "I1",
        Mode.AT_LEAST_ONCE, producer=type("First", (SplitProducer,), {"sender": ReportedWithItsFirst})),
    _breaks(
        "lease-unlooked", "What follows of a row is sent after the lease.", "I11",
        Mode.AT_LEAST_ONCE, producer=type("Unlooked", (SplitProducer,), {"sender": LeaseUnlooked})),
    under("crashes", **TEARING, each=_breaks(
        "untransformed", "The log is searched for rows as they are in the outbox.", "I6 checkpoint",
        Mode.EXACTLY_ONCE,
        batch_producer=type("Raw", (SplitTransactionalProducer,), {"rows": Untransformed}))),
    under("crashes", **TEARING, each=_breaks(
        "torn-forgotten", "All of a row is published again of which a part is in the log.", "I6 checkpoint",
        Mode.EXACTLY_ONCE, batch_producer=type("Forgets", (SpreadProducer,), {"rows": Forgetful}))),
    under("crashes, handovers", **PASSED_ON, each=_breaks(
        "torn-farewell", "A lane that ends takes its note back though rows are torn.", "I6 checkpoint",
        Mode.EXACTLY_ONCE, batch_producer=SpreadProducer, batch_lane=Farewell)),
)  # fmt: skip
