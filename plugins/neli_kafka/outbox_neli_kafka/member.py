"""One member of the election's consumer group, on a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Thread, current_thread
from typing import Final

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from outbox_sdk import Candidate, OutboxError

from outbox_neli_kafka.client_log import ClientLog
from outbox_neli_kafka.heartbeats import Heartbeats
from outbox_neli_kafka.neli import Leadership, Notice, Patience
from outbox_neli_kafka.options import NeliOptions
from outbox_neli_kafka.permissions import needed
from outbox_neli_kafka.settings import (
    client_settings,
    config_error,
    consumer_settings,
    driver_error,
    heartbeat_settings,
    is_refusal,
    reason,
)
from outbox_neli_kafka.topic import ensure_topic

log = logging.getLogger(__name__)

_SLICE: Final = 0.1
"""Seconds of one poll."""

_PARTITION: Final = 0
"""The partition whose owner leads; others, if the topic has any, mean nothing."""

_UNSETTLED: Final = frozenset(
    {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID}
)
"""What the coordinator answers while the group settles anew; the client sees to the rest."""

Commit = tuple[int, float]
"""The tenure in which a confirmation was asked for, and when."""


class Member:
    """Polls the group, confirms leadership, and tells the candidate."""

    def __init__(self, options: NeliOptions, candidate: Candidate, clock: Callable[[], float]) -> None:
        """Makes the consumer, which connects on its own.

        Args:
            options: The election's options.
            candidate: Is told of leadership, from this member's thread.
            clock: Returns seconds, and never goes back.

        Raises:
            ConfigError: librdkafka refuses the settings.
        """
        self._options = options
        self._candidate = candidate
        self._clock = clock
        self._leadership = Leadership(options.term)
        self._patience = Patience(options.stop_after)
        self._settings = consumer_settings(options)
        self._log = ClientLog()
        self._heartbeats = Heartbeats(heartbeat_settings(options), options.topic, options.group, self._log)
        self._commits: dict[str, Commit] = {}
        self._count = 0
        self._position = 0
        self._confirm_at = self._beat_at = float("-inf")
        self._stopping = Event()
        self._refusal: KafkaError | None = None
        self._failure: Exception | None = None
        self._restorer: Thread | None = None
        try:
            self._consumer = Consumer(
                {
                    **self._settings,
                    "logger": self._log,
                    "error_cb": self._on_error,
                    "on_commit": self._on_commit,
                }
            )
        except KafkaException as error:
            raise config_error(error.args[0].str(), self._settings) from None  # may quote a secret
        self._thread = Thread(target=self._run, name="neli", daemon=True)

    def start(self) -> None:
        """Joins the group; events arrive from now on."""
        self._thread.start()

    def lease(self) -> float:
        """Returns for how many more seconds leadership is vouched for; may be called from any thread."""
        return max(0.0, self._leadership.lease(self._clock()))

    def stop(self) -> None:
        """Hands over and leaves the group, and returns once that is done. Idempotent."""
        self._stopping.set()
        if self._thread is not current_thread():
            self._thread.join()

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._take_part()
        except KafkaException as error:
            self._fail(error.args[0], "the Kafka client failed")
        except Exception as error:  # noqa: BLE001 - say, from the candidate: it is told, and this member leaves
            self._failure = error
        self._leave()

    def _take_part(self) -> None:
        self._consumer.subscribe(
            [self._options.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        while not self._stopping.is_set() and self._failure is None:
            # After a pause of any length this comes first: the lease may have ended meanwhile.
            self._tell(self._leadership.tick(self._clock()))
            if self._refusal is not None and self._patience.exhausted(self._clock()):
                what = f"refused for {self._options.stop_after:g} s; {needed(self._options)}"
                self._fail(self._refusal, what)
                break
            self._prove()
            message = self._consumer.poll(_SLICE)
            if message is not None:
                self._take(message)
            # librdkafka's main thread sleeps up to a second unless it is asked for something, and sends
            # heartbeats only when awake; what a standby has to learn, it learns from their answers.
            self._consumer.memberid()

    def _leave(self) -> None:
        """Drains while the group still counts this process in, and leaves only then."""
        if self._failure is None:
            self._tell(self._leadership.revoked(self._clock()))
            self._leadership.ended()
        else:
            self._tell(self._leadership.lost(self._clock()))
        self._heartbeats.close()
        self._consumer.close()
        if self._failure is not None:
            self._candidate.failed(self._failure)

    def _prove(self) -> None:
        """Asks for a confirmation and sends a heartbeat when it is time to.

        Who was refused asks too, leader or not: it is the answer that tells when the permission is back.
        """
        now = self._clock()
        if (self._leadership.owns or self._patience.tried) and now >= self._confirm_at:
            self._confirm_at = now + self._options.pace
            self._count += 1
            self._commits[str(self._count)] = (self._leadership.tenure, now)
            # The answer is awaited in poll, so that a broker that is gone cannot hold up this thread.
            mine = TopicPartition(self._options.topic, _PARTITION, self._position, metadata=str(self._count))
            self._consumer.commit(offsets=[mine], asynchronous=True)
        if self._leadership.leads and now >= self._beat_at:
            self._beat_at = now + self._options.pace
            self._heartbeats.send(now, self._options.heartbeat_timeout)

    def _tell(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            log.debug("election '%s': %s", self._options.group, notice.name.lower())
            match notice:
                case Notice.ACQUIRED:
                    self._heartbeats.begin(self._clock())
                    self._candidate.acquired()
                case Notice.REVOKED:
                    self._candidate.revoked()
                case Notice.FENCED:
                    self._candidate.fenced()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            if message.partition() == _PARTITION:
                self._position = (message.offset() or 0) + 1
                self._heartbeats.hear(message.value(), self._clock())
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:  # noqa: SLF001 - librdkafka's spelling
            # Comes before on_lost does: the group was left because this thread was held up for too long.
            self._tell(self._leadership.lost(self._clock()))
        elif is_refusal(error):
            self._refuse(error)
        elif error.fatal():
            self._fail(error, f"cannot take part in the election on topic '{self._options.topic}'")
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001 - likewise
            self._restore_topic()
        else:
            self._log.warn(f"election '{self._options.group}': {reason(error, self._settings)}")

    def _refuse(self, error: KafkaError) -> None:
        """Takes a refusal: says what is missing, and goes on for a while."""
        self._refusal = error
        self._patience.refused(self._clock())
        told = f"{reason(error, self._settings)}; {needed(self._options)}"
        self._log.warn(
            f"election '{self._options.group}': {told}; trying again for {self._options.stop_after:g} s"
        )

    def _permit(self) -> None:
        if self._patience.tried:
            self._patience.permitted()
            log.info("election '%s': permitted again", self._options.group)

    def _fail(self, error: KafkaError, what: str) -> None:
        self._failure = driver_error(f"election '{self._options.group}': {what}", error, self._settings)

    def _restore_topic(self) -> None:
        """Creates the topic again after somebody deleted it; on the side, as a leader has no time to wait."""
        if self._restorer is None or not self._restorer.is_alive():
            self._restorer = Thread(target=self._create_topic, name="neli-topic", daemon=True)
            self._restorer.start()

    def _create_topic(self) -> None:
        try:
            ensure_topic(client_settings(self._options.kafka), self._options.topic)
        except OutboxError as error:
            self._log.warn(f"election '{self._options.group}': {error}")

    # --- what the client calls from poll and close --------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        # Heartbeats of others and of the past do not matter, wherever the group's offset is.
        consumer.incremental_assign(
            [TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions]
        )
        if _names_leadership(partitions):
            self._position = 0
            self._confirm_at = self._beat_at = float("-inf")
            self._tell(self._leadership.assigned(self._clock()))

    def _on_revoke(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if _names_leadership(partitions):
            self._tell(self._leadership.revoked(self._clock()))
            self._leadership.ended()

    def _on_lost(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if _names_leadership(partitions):
            self._tell(self._leadership.lost(self._clock()))

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            tenure, sent_at = self._commits.pop(each.metadata or "", (0, 0.0))
            failure = error or each.error
            if failure is not None and is_refusal(failure):
                self._refuse(failure)
                continue
            if failure is None or failure.code() in _UNSETTLED:
                self._permit()
            if failure is None:
                self._tell(self._leadership.confirmed(tenure, sent_at, self._clock()))
                continue
            self._confirm_at = min(self._confirm_at, self._clock() + _SLICE)
            text = f"election '{self._options.group}': not confirmed: {reason(failure, self._settings)}"
            if failure.code() in _UNSETTLED:
                log.debug("%s", text)
            else:
                self._log.warn(text)

    def _on_error(self, error: KafkaError) -> None:
        text = f"election '{self._options.group}': {reason(error, self._settings)}"
        if is_refusal(error) or error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - likewise
            self._log.warn(text)
        else:
            log.debug("%s", text)  # the client's log tells of single connections


def _names_leadership(partitions: Iterable[TopicPartition]) -> bool:
    return any(each.partition == _PARTITION for each in partitions)
