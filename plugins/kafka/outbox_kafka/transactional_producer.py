"""A transactional producer of librdkafka, with time limits, and with errors that say what is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message
from outbox_api import AccessDenied, DriverError, MarkedRecord, OutboxError

from outbox_kafka.client.clients import Producer, try_files
from outbox_kafka.client.errors import is_refusal
from outbox_kafka.client.files import Renewal
from outbox_kafka.client.quotas import quota_of
from outbox_kafka.errors import is_unrecoverable, log_client_error, reason, transaction_error
from outbox_kafka.produce import produce
from outbox_kafka.topic_cache import Statuses, look_up
from outbox_kafka.transaction_log import TransactionLog

UNKNOWN = "whether the transaction was committed is unknown"

_INITIALIZE_SECONDS = 30.0
"""Seconds for the coordinator to end the previous producer's transaction and to register this producer."""

_POLL_SECONDS = 0.1
"""Seconds of one wait inside the client; Python handles signals and errors between two waits."""

_RETRY_SECONDS = 0.02
_TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's spelling


class Outcomes(Protocol):
    """Receives what becomes of a transaction's records; true if any has an error."""

    @property
    def time_ms(self) -> int:
        """The timestamp of records without one of their own."""
        ...

    @property
    def delivery_failed(self) -> bool:
        """Whether the client accepted a record and then did not surely deliver it."""
        ...

    def __bool__(self) -> bool: ...

    def on_delivery(self, record: MarkedRecord, error: KafkaError | None, message: Message) -> None:
        """Receives a delivery report."""
        ...

    def on_refused(self, record: MarkedRecord, error: Exception) -> None:
        """Receives a record that the client did not accept."""
        ...


class TransactionalProducer:
    """Runs transactions one after the other; used by one thread.

    A method that raises a ``DriverError`` ends the producer: only :meth:`close` is left to call. So does an
    end of a transaction that the broker did not answer at once, though that has ended as it should: the next
    :meth:`begin` raises.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.error: DriverError | None = None
        self._settings = settings
        self._timeout = int(settings["transaction.timeout.ms"]) / 1000
        self._renewal = Renewal(settings)
        self._log = log = TransactionLog(settings)
        self._quota = quota_of(settings["client.id"])
        own = {"debug": log.contexts, "logger": log, "error_cb": partial(log_client_error, log, settings)}
        self._producer: Producer | None = Producer({**settings, **own, "throttle_cb": self._quota})

    def close(self) -> None:
        """Disconnects at once. Idempotent.

        librdkafka's own ``close`` aborts and flushes first, and waits for the broker without a limit. A
        producer without references is destroyed at once, so only this attribute may refer to it: not even a
        local variable may, because an error's traceback would keep it alive. The next producer with the same
        transactional id aborts an open transaction, or the broker does once it times out.
        """
        self._producer = None

    def initialize(self, topic: str) -> None:
        """Registers with the coordinator, which fences earlier producers and ends their transactions.

        Args:
            topic: One that exists.
        """
        what = f"cannot begin transactions as '{self._settings['transactional.id']}'"
        deadline = time.monotonic() + _INITIALIZE_SECONDS
        # The client looks for its coordinator over a connection to a broker of the metadata, not to one of
        # the bootstrap servers, and without one it looks again only after 500 ms. The second look-up has one.
        for _ in range(2):
            self.look_up([topic], (), {})
        while True:
            try:
                self._client.init_transactions(_POLL_SECONDS * 10)
            except KafkaException as caught:
                error = caught.args[0]
                self._flush(0)
                if error.retriable() and time.monotonic() < deadline:
                    continue
                message = f"{what}: {reason(error, self._settings)}"
                if is_refusal(error):
                    raise AccessDenied(message) from caught
                raise DriverError(message, retryable=not is_unrecoverable(error)) from caught
            else:
                return

    def begin(self) -> float:
        """Begins a transaction; returns its deadline on the monotonic clock."""
        self._flush(0)
        if self.error is not None:
            raise self.error
        if self._renewal.is_due():
            self._end_for_renewal()
        self._log.begin()
        try:
            self._client.begin_transaction()
        except KafkaException as error:
            raise self.end("nothing of the transaction was sent", error) from error
        return time.monotonic() + self._timeout

    def _end_for_renewal(self) -> None:
        """Ends the producer after its certificates have changed, so that the next one reads them.

        Only the lane's restart may open another: in between, the lane could have got another owner, whom a
        new producer would fence.
        """
        try:
            try_files(self._settings)
        except OutboxError as error:
            self._renewal.postpone()
            name = self._settings["client.id"]
            self._log.warn_once(f"{name}: changed certificates are not used yet: {error}")
            return
        self.error = DriverError("certificates have changed; open a new sender", retryable=True)
        raise self.error

    def send(self, records: Sequence[MarkedRecord], errors: Outcomes) -> None:
        """Hands records to the client, so that they leave with the next ones; waits only for room."""
        rest = records
        while True:
            handled = produce(
                self._client, rest, errors.on_delivery, errors.on_refused, now_ms=errors.time_ms
            )
            rest = rest[handled:]
            if not rest or errors:
                return
            self._flush(_POLL_SECONDS)  # the client's queue is full

    def produce(
        self, records: Sequence[MarkedRecord], errors: Outcomes, deadline: float
    ) -> KafkaError | None:
        """Produces records and waits for their delivery; returns why the transaction failed, if it did."""
        self.send(records, errors)
        return self._wait(errors, deadline)

    def poll(self) -> None:
        """Receives the delivery reports that have come; does not wait."""
        try:
            self._client.poll(0)
        except KafkaException as error:  # fatal, as of a producer that another one has fenced
            raise self.end("the transaction cannot go on", error) from error

    def commit(self, deadline: float) -> None:
        """Commits the transaction."""
        # A bound method would refer to the client (see close).
        self._end_transaction(deadline, lambda left: self._client.commit_transaction(left))  # noqa: PLW0108

    def abort(self) -> None:
        """Aborts the transaction.

        The outcome is unknown, too, if the broker knows of none: another request may have ended it.
        """
        deadline = time.monotonic() + self._timeout
        self._end_transaction(deadline, lambda left: self._client.abort_transaction(left))  # noqa: PLW0108
        if self._log.has_put_back and self.error is None:
            # The client gives the sequence of a record that it drops to the next one. If the broker has it,
            # it takes the next one for a copy, and names an offset of the aborted transaction.
            what = "records of an aborted transaction were put back, and may have been written"
            self.error = DriverError(f"{what}; open a new sender", retryable=True)

    def _end_transaction(self, deadline: float, call: Callable[[float], Any]) -> None:
        self._log.begin_end()
        try:
            self._retry(deadline, call)
            self._client.poll(0)  # hands over the lines of the log
        except KafkaException as error:
            raise self.end(UNKNOWN, error) from error
        except Exception as error:  # of a callback, say a filter of the log: the call went on
            why = f"{UNKNOWN}, as the client's callback raised {type(error).__name__}"
            self.error = DriverError(f"{why}; open a new sender", retryable=True)
            raise self.error from error
        if self._log.is_in_doubt:
            what = "the end of a transaction was not answered at once: its request may arrive a second time"
            self.error = DriverError(f"{what}; open a new sender", retryable=True)
        self.wait_for_quota(deadline)  # so that the time of a transaction includes what its bytes cost

    @property
    def has_quota(self) -> bool:
        """Whether brokers have delayed this producer lately, as a quota was used up."""
        return self._quota.is_used_up

    def wait_for_quota(self, deadline: float) -> None:
        """Waits until all brokers read from this client again, but not beyond the deadline.

        What is sent before only waits in the network, while its delivery times out.
        """
        while self.error is None and (left := min(self._quota.seconds, deadline - time.monotonic())) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            self._flush(0)

    def look_up(self, topics: Collection[str], new: Collection[str], partitions: dict[str, int]) -> Statuses:
        """Asks the broker for the status of topics, see :func:`outbox_kafka.topic_cache.look_up`."""
        return look_up(self._client, topics, new, partitions)

    def end(self, what: str, caught: KafkaException) -> DriverError:
        """Ends the producer; returns the error to raise."""
        self.error = transaction_error(what, caught.args[0], self._settings)
        return self.error

    @property
    def _client(self) -> Producer:
        if self._producer is None:
            raise DriverError("the sender is closed; open a new one", retryable=True)
        return self._producer

    def _wait(self, errors: Outcomes, deadline: float) -> KafkaError | None:
        """Waits until every record is delivered or one is not; returns why the transaction failed, if so."""
        waiting = len(self._client)
        while waiting and not errors.delivery_failed:
            self._flush(_POLL_SECONDS)
            if self.error is not None:
                raise self.error
            before, waiting = waiting, len(self._client)
            error = self._transaction_error() if waiting == before else None
            if error is not None or time.monotonic() >= deadline:
                return error or _TIMED_OUT
        return self._transaction_error() if errors.delivery_failed else None

    def _transaction_error(self) -> KafkaError | None:
        """Returns why the transaction as a whole has failed, if it has: delivery reports do not tell."""
        try:
            self._client.begin_transaction()  # always refused inside a transaction; the error tells its state
        except KafkaException as caught:
            error: KafkaError = caught.args[0]
            if error.fatal():
                raise self.end(UNKNOWN, caught) from caught
            return error if error.txn_requires_abort() else None
        raise AssertionError("a transaction began inside another")

    def _retry(self, deadline: float, call: Callable[[float], Any]) -> None:
        """Repeats ``call`` until it succeeds, raises an error that is not retryable, or time is up."""
        while True:
            try:
                call(max(deadline - time.monotonic(), _POLL_SECONDS))
            except KafkaException as caught:
                error = caught.args[0]
                if not error.retriable() or error.txn_requires_abort() or time.monotonic() >= deadline:
                    raise
                self._flush(0)
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _flush(self, timeout: float) -> None:
        """Receives delivery reports until all have arrived or ``timeout`` seconds have passed."""
        try:
            self._client.flush(timeout)
        except KafkaException as error:
            self.end(UNKNOWN, error)
