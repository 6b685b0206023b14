"""A lane's transactional producer: publishes a batch and its marker, all or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from outbox_sdk import AccessDenied, Batch, DriverError, Failure, MarkedRecord

from outbox_kafka.attempt import Attempt, portions
from outbox_kafka.client_log import ClientLog
from outbox_kafka.handover import hand_over
from outbox_kafka.marker import MarkerPlace, encode
from outbox_kafka.settings import config_error, redact
from outbox_kafka.verdict import is_fenced, is_hopeless, is_refusal, reason

_OPENING = 30.0
"""Seconds for the coordinator to end what an earlier sender was about, and to take this one."""

_SLICE = 0.1
"""Seconds of one wait inside the client: between two, Python handles signals and errors are noticed."""

_STALL = 1.0
"""Seconds without a delivery after which the client is asked whether the transaction has failed."""

_PORTION = 1_000_000
"""Bytes that the client puts into a request unless told otherwise; where smaller portions are cut from."""


class KafkaTransactionalSender:
    """Sends over one transactional producer; see :class:`outbox_sdk.TransactionalSender` for the contract.

    Asking for the commit is the point of no return. Before, a transaction is aborted when anything goes
    wrong, and the abort is certain. After, whatever is not a success is an unknown outcome: even an error
    that the client calls abortable may be the answer to a second request, of which the first succeeded.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        place: MarkerPlace,
        unwritable: Callable[[Collection[str]], set[str]],
    ) -> None:
        """Connects, and ends what an earlier sender was about.

        Args:
            settings: librdkafka's settings, complete.
            place: Where the lane's marker is kept.
            unwritable: Picks the topics that the broker does not let us write to.

        Raises:
            ConfigError: librdkafka refuses the settings.
            DriverError: The broker cannot be reached or refuses, or would not be done with an earlier sender.
        """
        self._settings = settings
        self._place = place
        self._unwritable = unwritable
        self._log = ClientLog()
        self._ended: DriverError | None = None
        self._attempt = Attempt()
        self._portion: int | None = None
        self._length = int(settings["transaction.timeout.ms"]) / 1000
        try:
            self._producer: Producer | None = Producer(
                {**settings, "logger": self._log, "error_cb": partial(self._log.tell, settings)}
            )
        except KafkaException as error:
            raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret
        try:
            self._initialize(self._producer)
        except BaseException:
            self.close()
            raise

    def marker(self) -> list[Batch]:
        """Reads the marker; see :meth:`outbox_sdk.TransactionalSender.marker`."""
        return self._place.read()

    def publish(self, records: Sequence[MarkedRecord], marker: Sequence[Batch]) -> list[Failure]:
        """Publishes in one transaction; see :meth:`outbox_sdk.TransactionalSender.publish`.

        Takes up to about twice ``transaction.timeout.ms``, several times that in the rare case that a topic
        takes less at once than the client sends: then the records go in ever smaller portions, each waited
        for, until it is clear which of them is too large by itself.

        Raises:
            ValueError: The marker holds too many batches.
        """
        text = encode(marker)
        while True:
            producer, deadline = self._begin()
            trouble = self._fill(producer, records, text, deadline)
            if trouble is None and not self._attempt:
                self._commit(producer, deadline)
                return []
            self._abort(producer)
            if self._attempt.undecided:
                self._portion = (self._portion or _PORTION) // 4
                continue
            return self._verdict(records, trouble)

    def close(self) -> None:
        """Disconnects; see :meth:`outbox_sdk.TransactionalSender.close`."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.purge()
            producer.close()
        except KafkaException as error:
            self._log.tell(self._settings, error.args[0])

    def _initialize(self, producer: Producer) -> None:
        what = f"cannot begin transactions as '{self._settings['transactional.id']}'"
        deadline = time.monotonic() + _OPENING
        while True:
            try:
                producer.init_transactions(_SLICE * 10)
            except KafkaException as caught:
                error = caught.args[0]
                self._serve(producer.poll)
                if error.retriable() and time.monotonic() < deadline:
                    continue
                message = f"{what}: {redact(reason(error), self._settings)}"
                if is_refusal(error):
                    raise AccessDenied(message) from caught
                raise DriverError(message, retryable=not is_hopeless(error)) from caught
            else:
                return

    def _begin(self) -> tuple[Producer, float]:
        if self._producer is None:
            raise DriverError("the sender is closed; open a new one", retryable=True)
        self._serve(self._producer.poll)
        if self._ended is not None:
            raise self._ended
        self._attempt = Attempt()
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._end("nothing of the transaction was sent", error) from error
        return self._producer, time.monotonic() + self._length

    def _fill(
        self, producer: Producer, records: Sequence[MarkedRecord], text: str, deadline: float
    ) -> KafkaError | None:
        """Sends everything and waits until it is there; returns why the transaction is lost, if it is.

        It is lost, too, if the attempt has any trouble with a record.
        """
        for number, portion in enumerate(portions(records, self._portion)):
            self._attempt.portion = portion
            self._hand_over(producer, portion)
            # The broker works on the records meanwhile.
            trouble = self._send_marker(producer, text, deadline) if number == 0 else None
            trouble = trouble or self._settle(producer, text, deadline)
            if trouble is not None or self._attempt:
                return trouble
        return None

    def _hand_over(self, producer: Producer, records: Sequence[MarkedRecord]) -> None:
        attempt = self._attempt
        rest = records
        while True:
            taken = hand_over(producer, rest, attempt.report, attempt.refuse)
            rest = rest[taken:]
            if not rest or attempt:
                return
            self._serve(producer.poll, _SLICE)  # the client's queue is full

    def _send_marker(self, producer: Producer, text: str, deadline: float) -> KafkaError | None:
        offsets, group = self._place.offsets(text), self._place.group
        try:
            self._retry(
                producer, deadline, lambda left: producer.send_offsets_to_transaction(offsets, group, left)
            )
        except KafkaException as caught:
            error: KafkaError = caught.args[0]
            if error.fatal() or is_fenced(error) or is_refusal(error):
                raise self._end("nothing of the transaction was committed", caught) from caught
            return error
        return None

    def _settle(self, producer: Producer, text: str, deadline: float) -> KafkaError | None:
        """Waits until every record is delivered or one is not; returns why the transaction is lost, if so."""
        waiting, progress = len(producer), time.monotonic()
        while waiting and not self._attempt.failed:
            self._serve(producer.flush, _SLICE)
            if self._ended is not None:
                raise self._ended
            before, waiting = waiting, len(producer)
            if waiting != before:
                progress = time.monotonic()
            elif time.monotonic() - progress > _STALL:
                # A transaction that has failed as a whole does not report its records: it says so only to
                # the next call, and the marker may be sent as often as one likes.
                trouble = self._send_marker(producer, text, deadline)
                if trouble is not None:
                    return trouble
                progress = time.monotonic()
        return None

    def _commit(self, producer: Producer, deadline: float) -> None:
        try:
            self._retry(producer, deadline, producer.commit_transaction)
        except KafkaException as error:
            raise self._end("whether the transaction was committed is unknown", error) from error

    def _abort(self, producer: Producer) -> None:
        try:
            self._retry(producer, time.monotonic() + self._length, producer.abort_transaction)
        except KafkaException as error:
            raise self._end("nothing of the transaction was committed", error) from error

    def _verdict(self, records: Sequence[MarkedRecord], trouble: KafkaError | None) -> list[Failure]:
        """Says which records were to blame for an aborted transaction, the first of each key."""
        if trouble is not None and trouble.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # It names no topic; and the one without permission may be the marker's.
            refused = self._unwritable({record.topic for record in records})
            if not refused:
                raise self._end("nothing of the transaction was committed", KafkaException(trouble))
            self._attempt.blame(record for record in records if record.topic in refused)
        failures = self._attempt.failures(records, trouble, self._settings)
        if not failures:
            raise DriverError("a transaction without records did not go through", retryable=True)
        return failures

    def _retry(self, producer: Producer, deadline: float, call: Callable[[float], Any]) -> None:
        """Calls until it succeeds, ``deadline`` is past, or what it raises is not worth another call."""
        while True:
            try:
                call(max(deadline - time.monotonic(), _SLICE))
            except KafkaException as caught:
                error = caught.args[0]
                if not error.retriable() or error.txn_requires_abort() or time.monotonic() >= deadline:
                    raise
                self._serve(producer.poll, _SLICE)
            else:
                return

    def _serve(self, wait: Callable[[float], Any], timeout: float = 0) -> None:
        """Takes reports and errors while it waits; the client raises those that end it."""
        try:
            wait(timeout)
        except KafkaException as error:
            self._end("nothing of the transaction was committed", error)

    def _end(self, what: str, caught: KafkaException) -> DriverError:
        """Makes the error after which this sender can only be closed, and keeps it."""
        error = caught.args[0]
        why = redact(reason(error), self._settings)
        name = self._settings["transactional.id"]
        if is_refusal(error) or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._ended = AccessDenied(f"{what}, as Kafka refuses '{name}': {why}")
        elif is_fenced(error):
            self._ended = DriverError(
                f"{what}: somebody else has opened '{name}', or it took longer than transaction.timeout.ms "
                f"({why}); open a new sender",
                retryable=True,
            )
        else:
            self._ended = DriverError(f"{what}: {why}; open a new sender", retryable=True)
        return self._ended
