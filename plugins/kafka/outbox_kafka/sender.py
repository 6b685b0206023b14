"""A lane's sender: hands records to librdkafka and gathers its delivery reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from outbox_sdk import AccessDenied, Deliveries, DriverError, Failure, MarkedRecord

from outbox_kafka.alone import AloneProducer
from outbox_kafka.aside import Aside
from outbox_kafka.client import Client, connect, leave
from outbox_kafka.clock import Verdict, judge
from outbox_kafka.gate import TopicGate
from outbox_kafka.handover import failure, hand_over
from outbox_kafka.known_topics import KnownTopics, find
from outbox_kafka.settings import redact
from outbox_kafka.verdict import (
    blames_the_batch,
    is_missing,
    is_purged,
    is_refusal,
    is_untimely,
    reason,
)

_SLICE = 0.1
"""Seconds of one wait inside the client: between two, Python handles signals."""

_TURN = 0.005
"""Seconds of one wait while something else is looked at in turn, of which the producer knows nothing."""

_FULL = "Local: Queue full"


class KafkaSender:
    """Sends over one idempotent producer; see :class:`outbox_sdk.Sender` for the contract."""

    def __init__(self, lane: str, settings: Mapping[str, Any]) -> None:
        """Makes the producer, or takes the one that the lane's sender before has left in this process.

        It connects on its own, so a broker that is down does not hold this up.

        Args:
            lane: The lane's name.
            settings: librdkafka's settings, complete.

        Raises:
            ConfigError: librdkafka refuses the settings.
        """
        self._settings = settings
        self._reports = Deliveries()
        self._broken: DriverError | None = None
        self._useless = False
        self._alone: AloneProducer | None = None
        self._reasons: dict[int, str] = {}  # of those who are turned away, of whom there may be very many
        self._untimely: dict[str, list[MarkedRecord]] = {}
        self._aside = Aside()
        self._topics = KnownTopics(int(settings["topic.metadata.propagation.max.ms"]) / 1000)
        self._client: Client | None = connect(lane, settings)
        self._client.heed = self._heed
        ask = partial(find, self._client.producer)
        self._gate = TopicGate(self._topics, ask, self._aside, self._let_through, self._turn_away)

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Hands ``records`` to the client in order; see :meth:`outbox_sdk.Sender.send`.

        Once the client's queue is full the rest of ``records`` fails too, so that none passes another. Where
        it is not known whether a topic exists, its records are kept here until the broker has told.
        """
        if self._broken:
            raise self._broken
        self._hand_over(records, self._refuse, self._gate)
        self._gate.ask()

    def poll(self, timeout: float) -> Deliveries:
        """Waits for the first report and takes all that are there; see :meth:`outbox_sdk.Sender.poll`.

        Reports that came in before the client broke are returned first; the call after raises.
        """
        if self._broken is None:
            self._wait(timeout)
        reports = self._take()
        if self._broken and not (reports.delivered or reports.failed):
            raise self._broken
        return reports

    def close(self, timeout: float) -> Deliveries:
        """Flushes, and drops what is left; see :meth:`outbox_sdk.Sender.close`.

        If anything may be under way still, the connection stays for the lane's next sender in this process.
        """
        client = self._client
        if client is None:
            return Deliveries()
        producer, deadline = client.producer, time.monotonic() + timeout
        while (len(producer) or self._alone or self._gate) and self._broken is None:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._serve(producer, min(left, _SLICE))
        client.doubtful = not self._useless and (client.doubtful or len(producer) > 0)
        producer.purge()
        # What was purged reports itself now; those reports only say that nothing is known.
        self._serve(producer, 0)
        self._aside.close()  # it asks through the producer
        if self._alone is not None:
            self._alone.close()
            self._alone = None
        self._client = None
        leave(client)
        return self._take()

    def _open(self) -> Client:
        if self._client is None:
            raise DriverError("the sender is closed; open a new one", retryable=True)
        return self._client

    def _hand_over(
        self,
        records: Sequence[MarkedRecord],
        refuse: Callable[[MarkedRecord, Exception], None],
        gate: TopicGate | None = None,
    ) -> None:
        taken = hand_over(self._open().producer, records, self._report, refuse, gate)
        self._reports.failed.extend(Failure(rest, _FULL, retryable=True) for rest in records[taken:])

    def _let_through(self, records: Sequence[MarkedRecord]) -> None:
        self._hand_over(records, self._reject)

    def _turn_away(self, records: Sequence[MarkedRecord], error: KafkaError, may_pass: bool) -> None:
        why = self._reasons.get(error.code())
        if why is None:
            why = self._reasons[error.code()] = redact(reason(error), self._settings)
        self._reports.failed.extend(Failure(record, why, retryable=may_pass) for record in records)

    def _wait(self, timeout: float) -> None:
        producer, reports = self._open().producer, self._reports
        deadline = time.monotonic() + timeout
        left = 0.0 if reports.failed else timeout
        while True:
            self._serve(producer, min(left, _SLICE))
            if reports.delivered or reports.failed or self._broken:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                return

    def _serve(self, producer: Producer, timeout: float) -> None:
        try:
            if self._aside:
                timeout = min(timeout, _TURN)
                self._aside.serve()
            if not self._alone:
                producer.poll(timeout)
            else:
                producer.poll(0)
                self._alone.poll(min(timeout, _TURN))
        except KafkaException as error:
            self._break(error.args[0])

    def _take(self) -> Deliveries:
        reports, self._reports = self._reports, Deliveries()
        if reports.delivered and self._client:
            self._client.proven = True
        return reports

    def _report(self, record: MarkedRecord, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._reports.delivered.append(record)
        elif self._client is None or is_purged(error):
            return
        elif blames_the_batch(error):
            self._send_alone(record)
        else:
            self._reject(record, error)

    def _report_alone(self, record: MarkedRecord, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._reports.delivered.append(record)
        elif is_untimely(error) and not record.timestamp_ms:
            self._judge(record)
        elif not is_purged(error):
            self._reject(record, error)

    def _send_alone(self, record: MarkedRecord) -> None:
        """Sends again what was refused in a batch; an error in here would end the client's own call."""
        try:
            if self._alone is None:
                self._alone = AloneProducer(self._settings, self._report_alone, self._heed)
            self._alone.send(record)
        except BufferError as error:
            self._reports.failed.append(Failure(record, str(error), retryable=True))
        except KafkaException as error:
            self._reject(record, error.args[0])

    def _judge(self, record: MarkedRecord) -> None:
        """Has it found out why the broker refused the time that we gave a record."""
        if record.topic not in self._untimely:
            self._untimely[record.topic] = []
            self._aside.ask(partial(judge, self._settings, record.topic), partial(self._rule, record.topic))
        self._untimely[record.topic].append(record)

    def _rule(self, topic: str, verdict: Verdict) -> None:
        """Fails the records that waited for the verdict, or ends the sender: no fault of theirs."""
        records = self._untimely.pop(topic)
        if verdict.clock:
            self._broken = self._broken or DriverError(verdict.reason, retryable=False)
        else:
            self._reports.failed.extend(Failure(each, verdict.reason, retryable=True) for each in records)

    def _refuse(self, record: MarkedRecord, error: Exception) -> None:
        if isinstance(error, KafkaException) and is_missing(error.args[0]):
            # By what the client remembers; it may exist by now, and asking makes the client look again.
            self._topics.lose(record.topic)
            self._gate.take(record)
        else:
            self._reject(record, error)

    def _reject(self, record: MarkedRecord, error: KafkaError | Exception) -> None:
        trouble = error.args[0] if isinstance(error, KafkaException) else error
        if isinstance(trouble, KafkaError) and is_missing(trouble):
            self._gate.lose(record)
            return
        failed = failure(record, trouble, self._settings)
        self._open().doubtful |= failed.retryable
        self._reports.failed.append(failed)
        if isinstance(trouble, KafkaError) and trouble.fatal():
            self._break(trouble)

    def _heed(self, error: KafkaError) -> None:
        """Takes an error of the client's own; it reconnects by itself, so few of them end anything."""
        client = self._open()
        client.log.tell(self._settings, error)
        # Once something was delivered the credentials are known to be good, and a refusal is the trouble of
        # one broker (say, a rolling change of passwords) that the client may outlive.
        if is_refusal(error) and not client.proven:
            self._break(error)

    def _break(self, error: KafkaError) -> None:
        if self._broken:
            return
        self._useless, refused = True, is_refusal(error)
        cure = "check the credentials and the permissions" if refused else "open a new sender"
        message = f"the Kafka producer can go on no longer: {redact(reason(error), self._settings)}; {cure}"
        self._broken = AccessDenied(message) if refused else DriverError(message, retryable=True)
