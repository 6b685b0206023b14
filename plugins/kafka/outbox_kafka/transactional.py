"""A lane's transactional producer: publishes a batch and its marker, all or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from outbox_sdk import AccessDenied, Batch, DriverError, Failure, MarkedRecord

from outbox_kafka.attempt import Attempt, portions
from outbox_kafka.bounded import Bounded
from outbox_kafka.client_log import ClientLog
from outbox_kafka.clock import judge
from outbox_kafka.handover import hand_over, turn_away
from outbox_kafka.known_topics import KnownTopics, find
from outbox_kafka.marker import MarkerPlace, encode
from outbox_kafka.settings import config_error, redact
from outbox_kafka.verdict import ending, is_hopeless, is_refusal, reason

_OPENING = 30.0
"""Seconds for the coordinator to end what an earlier sender was about, and to take this one."""

_SLICE = 0.1
"""Seconds of one wait inside the client: between two, Python handles signals and errors are noticed."""

_PORTION = 1_000_000
"""Bytes that the client puts into a request unless told otherwise; where smaller portions are cut from."""

_PAUSE = 0.02
"""Seconds between two tries."""

_GRACE = 1.0
"""Seconds that a call may take longer than it was told to."""

_TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's spelling
_SPARES = 2
"""Further tries of a transaction that failed through no record. The one after a refusal always does:
the client has counted the refused records, the broker has not, and the next abort makes them agree.
"""

_NOTHING = "nothing of the transaction was committed"


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
        self._bounded = Bounded()
        self._ended: DriverError | None = None
        self._attempt = Attempt()
        self._topics = KnownTopics(int(settings["topic.metadata.propagation.max.ms"]) / 1000)
        self._portion: int | None = None
        self._length = int(settings["transaction.timeout.ms"]) / 1000
        try:
            self._producer: Producer | None = Producer(
                {**settings, "logger": self._log, "error_cb": partial(self._log.tell, settings)}
            )
        except KafkaException as error:
            raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret
        try:
            self._initialize()
            self._clear()
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        """Names cluster and topic; see :attr:`outbox_sdk.TransactionalSender.place`."""
        return self._place.name

    def marker(self, place: str = "") -> list[Batch] | None:
        """Reads the marker; see :meth:`outbox_sdk.TransactionalSender.marker`."""
        return self._place.read(place)

    def publish(self, records: Sequence[MarkedRecord], marker: Sequence[Batch]) -> list[Failure]:
        """Publishes in one transaction; see :meth:`outbox_sdk.TransactionalSender.publish`.

        Takes up to about twice ``transaction.timeout.ms``, several times that in the rare case that a topic
        takes less at once than the client sends: then the records go in ever smaller portions, each waited
        for, until it is clear which of them is too large by itself.

        Raises:
            ValueError: The marker holds too many batches.
        """
        text = encode(marker)
        spares = _SPARES
        ask = lambda topics, news: find(self._client, topics, news)  # noqa: E731 - refers to no client (see close)
        if missing := turn_away(self._topics, ask, records, self._settings):
            return missing
        while True:
            deadline = self._begin()
            trouble = self._fill(records, text, deadline)
            if trouble is None and not self._attempt:
                self._commit(deadline)
                return []
            self._abort()
            if self._attempt.undecided:
                self._portion = (self._portion or _PORTION) // 4
            elif spares and self._ended is None and self._attempt.blameless(trouble):
                spares -= 1
            else:
                return self._verdict(records, trouble)

    def close(self) -> None:
        """Disconnects; see :meth:`outbox_sdk.TransactionalSender.close`.

        The client's own ``close`` first aborts and flushes, and waits for the broker without end. One that is
        no longer referred to goes at once, so nothing but this attribute may refer to it: not even a local
        variable, which an error's traceback would keep alive. A transaction that is still open is aborted by
        whoever opens the lane next, or by the broker in due time.
        """
        self._bounded.close()
        self._producer = None

    @property
    def _client(self) -> Producer:
        if self._producer is None:
            raise DriverError("the sender is closed; open a new one", retryable=True)
        return self._producer

    def _initialize(self) -> None:
        what = f"cannot begin transactions as '{self._settings['transactional.id']}'"
        deadline = time.monotonic() + _OPENING
        while True:
            try:
                self._client.init_transactions(_SLICE * 10)
            except KafkaException as caught:
                error = caught.args[0]
                self._serve(0)
                if error.retriable() and time.monotonic() < deadline:
                    continue
                message = f"{what}: {redact(reason(error), self._settings)}"
                if is_refusal(error):
                    raise AccessDenied(message) from caught
                raise DriverError(message, retryable=not is_hopeless(error)) from caught
            else:
                return

    def _clear(self) -> None:
        """Takes away what an earlier sender has asked of the marker, however late the broker hears of it.

        A broker that does not look whether there is such a transaction (before KIP-890, or told not to) takes
        a request that comes after the abort, and the marker would be in doubt for ever. Another transaction
        that is aborted ends the doubt. The broker has seen our epoch then, and refuses what is later still.
        """
        try:
            # Refusals show now, and the group's coordinator is awake: the producer may wait in vain for one.
            self._place.read()
        except DriverError as error:
            if not error.retryable:
                raise
        trouble = self._send_marker(encode([]), self._begin())
        self._abort()
        if trouble is not None:
            raise ending(_NOTHING, trouble, self._settings)

    def _begin(self) -> float:
        """Begins a transaction, and returns by when it must have ended, on the monotonic clock."""
        self._serve(0)
        if self._ended is not None:
            raise self._ended
        self._attempt = Attempt()
        try:
            self._client.begin_transaction()
        except KafkaException as error:
            raise self._end("nothing of the transaction was sent", error) from error
        return time.monotonic() + self._length

    def _fill(self, records: Sequence[MarkedRecord], text: str, deadline: float) -> KafkaError | None:
        """Sends everything and waits until it is there; returns why the transaction is lost, if it is.

        It is lost, too, if the attempt has any trouble with a record.
        """
        trouble = self._send_marker(text, deadline)
        if trouble is not None:
            return trouble
        for portion in portions(records, self._portion):
            self._attempt.portion = portion
            self._hand_over(portion)
            trouble = self._settle(deadline)
            if trouble is not None or self._attempt:
                return trouble
        return None

    def _hand_over(self, records: Sequence[MarkedRecord]) -> None:
        attempt = self._attempt
        rest = records
        while True:
            taken = hand_over(self._client, rest, attempt.report, attempt.refuse)
            rest = rest[taken:]
            if not rest or attempt:
                return
            self._serve(_SLICE)  # the client's queue is full

    def _settle(self, deadline: float) -> KafkaError | None:
        """Waits until every record is delivered or one is not; returns why the transaction is lost, if so."""
        waiting = len(self._client)
        while waiting and not self._attempt.failed:
            self._serve(_SLICE)
            if self._ended is not None:
                raise self._ended
            before, waiting = waiting, len(self._client)
            trouble = self._lost() if waiting == before else None
            if trouble is not None or time.monotonic() >= deadline:
                return trouble or _TIMED_OUT
        return self._lost() if self._attempt.failed else None

    def _lost(self) -> KafkaError | None:
        """Asks why the transaction has failed as a whole, if it has: its records do not report that."""
        try:
            self._client.begin_transaction()  # refused at once, as one is under way, or for a better reason
        except KafkaException as caught:
            error: KafkaError = caught.args[0]
            if error.fatal():
                raise self._end(_NOTHING, caught) from caught
            return error if error.txn_requires_abort() else None
        raise AssertionError("a transaction began inside another")

    def _send_marker(self, text: str, deadline: float) -> KafkaError | None:
        """Makes the marker part of the transaction; returns why the transaction is lost, if it is.

        It goes first, and is waited for: while the broker still completes the transaction before, it refuses
        whatever belongs to the next. The client then asks again about a marker after ``retry.backoff.ms``,
        but about records only after 20 ms, however long the broker took.

        A request for it that the client has given up on may still be sent, as part of the next transaction.
        So after a failure there must not be a next one.
        """
        offsets, group = self._place.offsets(text), self._place.group

        def call(left: float) -> None:
            # The client forgets its own timeout while it looks for the group's coordinator.
            if not self._bounded.call(
                lambda: self._client.send_offsets_to_transaction(offsets, group, left), left + _GRACE
            ):
                raise KafkaException(_TIMED_OUT)

        try:
            self._retry(deadline, call)
        except KafkaException as caught:
            ended = self._end(_NOTHING, caught)
            error: KafkaError = caught.args[0]
            if not error.txn_requires_abort() or is_refusal(error):
                raise ended from caught
            return error
        return None

    def _commit(self, deadline: float) -> None:
        try:
            # A bound method would refer to the client (see close).
            self._retry(deadline, lambda left: self._client.commit_transaction(left))  # noqa: PLW0108
        except KafkaException as error:
            raise self._end("whether the transaction was committed is unknown", error) from error

    def _abort(self) -> None:
        try:
            deadline = time.monotonic() + self._length
            self._retry(deadline, lambda left: self._client.abort_transaction(left))  # noqa: PLW0108 - as above
        except KafkaException as error:
            ended = self._end(_NOTHING, error)
            # To the broker there is no transaction, as when it did not learn of any: as good as aborted.
            if error.args[0].code() != KafkaError.INVALID_TXN_STATE:
                raise ended from error

    def _verdict(self, records: Sequence[MarkedRecord], trouble: KafkaError | None) -> list[Failure]:
        """Says which records were to blame for an aborted transaction, the first of each key."""
        if trouble is not None and trouble.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # It names no topic; and the one without permission may be the marker's.
            refused = self._unwritable({record.topic for record in records})
            if not refused:
                raise self._end(_NOTHING, KafkaException(trouble))
            self._attempt.blame(record for record in records if record.topic in refused)
        for topic in self._attempt.missing:
            self._topics.lose(topic)
        if (untimely := self._attempt.untimely(records)) is not None:
            verdict = judge(self._settings, untimely.topic)
            if verdict.clock:
                raise DriverError(f"{_NOTHING}: {verdict.reason}", retryable=False)
            return [Failure(untimely, verdict.reason, retryable=True)]
        failures = self._attempt.failures(records, trouble, self._settings)
        if not failures:
            raise DriverError("a transaction without records did not go through", retryable=True)
        return failures

    def _retry(self, deadline: float, call: Callable[[float], Any]) -> None:
        """Calls until it succeeds, ``deadline`` is past, or what it raises is not worth another call."""
        while True:
            try:
                call(max(deadline - time.monotonic(), _SLICE))
            except KafkaException as caught:
                error = caught.args[0]
                if not error.retriable() or error.txn_requires_abort() or time.monotonic() >= deadline:
                    raise
                self._serve(0)
                time.sleep(_PAUSE)
            else:
                return

    def _serve(self, timeout: float) -> None:
        """Takes reports until there are no more to come, or ``timeout`` seconds have passed."""
        try:
            self._client.flush(timeout)
        except KafkaException as error:
            self._end(_NOTHING, error)

    def _end(self, what: str, caught: KafkaException) -> DriverError:
        """Makes the error after which this sender can only be closed, and keeps it."""
        self._ended = ending(what, caught.args[0], self._settings)
        return self._ended
