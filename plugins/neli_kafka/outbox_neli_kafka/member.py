"""A member of the election's consumer group, on a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from threading import Event, Thread, current_thread
from typing import Final

import confluent_kafka
from confluent_kafka import (
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from outbox_api import Candidate, OutboxError
from outbox_api.election.leadership import Leadership, LeadershipEvent, RefusalTimeout, elapsed, notify
from outbox_api.support.context_thread import ContextThread, as_exception
from outbox_kafka.client.clients import ClientLog, Consumer, try_files
from outbox_kafka.client.errors import concerns_all_brokers, describe
from outbox_kafka.client.files import Renewal
from outbox_kafka.client.settings import client_settings

from outbox_neli_kafka.leaving import close, leave
from outbox_neli_kafka.permissions import driver_error, ensure_topic, is_refusal, required
from outbox_neli_kafka.settings import NeliOptions, consumer_settings

log = logging.getLogger("outbox.neli_kafka")

_POLL_SECONDS: Final = 0.1
_PARTITION: Final = 0
"""The partition whose owner leads; further partitions of the topic have no meaning."""

_REBALANCING: Final = frozenset(
    {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID}
)
"""The coordinator's errors during a rebalance; the client handles them."""

Commit = tuple[str, int, float]
"""A commit's number, the assignment for which it was sent, and when it was sent."""


class Member:
    """Polls the group, confirms leadership, and notifies the candidate."""

    def __init__(self, options: NeliOptions, candidate: Candidate) -> None:
        self._options = options
        self._candidate = candidate
        self._clock = elapsed
        self._leadership = Leadership(options.lease_duration)
        self._refusal_timeout = RefusalTimeout(options.stop_after)
        self._settings = consumer_settings(options)
        self._renewal = Renewal(self._settings)
        self._log = ClientLog()
        self._commit: Commit | None = None
        self._count = 0
        self._confirm_at = float("-inf")
        self._stopping = Event()
        self._refusal: KafkaError | None = None
        self._failure: Exception | None = None
        self._topic_creator: Thread | None = None
        self._consumer = self._connect()
        self._thread = ContextThread(target=self._run, name="neli", daemon=True)

    def start(self) -> None:
        """Joins the group; the candidate receives events from now on."""
        self._thread.start()

    def lease(self) -> float:
        """Returns the seconds until the lease expires; may be called from any thread."""
        return max(0.0, self._leadership.lease(self._clock()))

    def stop(self) -> None:
        """Hands over, leaves the group, and waits until that is done. Idempotent.

        If the group cannot be left in time, its session expires instead.
        """
        self._stopping.set()
        if self._thread.ident is None:
            close(self._consumer, self._options.group)
        elif self._thread is not current_thread():
            self._thread.join()

    def _connect(self) -> Consumer:
        """Creates a consumer; each of this member's has the same place in the group."""
        own = {"logger": self._log, "error_cb": self._on_error, "on_commit": self._on_commit}
        return Consumer({**self._settings, **own})

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._take_part()
        except KafkaException as error:
            self._fail(error.args[0], "the Kafka client failed")
        except BaseException as error:  # noqa: BLE001 - say, of the candidate, which receives it again
            self._failure = as_exception(error)
        try:
            self._leave()
        except BaseException as error:  # noqa: BLE001 - likewise
            self._failure = self._failure or as_exception(error)
        if self._failure is not None:
            self._candidate.failed(self._failure)

    def _take_part(self) -> None:
        self._subscribe()
        while not self._stopping.is_set() and self._failure is None:
            # First, because the lease may have expired during a pause of this thread.
            self._notify(self._leadership.tick(self._clock()))
            if self._refusal is not None and self._refusal_timeout.has_expired(self._clock()):
                what = f"refused for {self._options.stop_after:g} s; {required(self._options)}"
                self._fail(self._refusal, what)
                break
            if self._renewal.is_due():
                self._reopen()
            self._confirm()
            message = self._consumer.poll(_POLL_SECONDS)
            if message is not None:
                self._on_message(message)
            # Wakes librdkafka's main thread, which sleeps up to a second otherwise and sends no heartbeats
            # meanwhile. A standby learns of changes in the group from the answers to its heartbeats.
            self._consumer.memberid()

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self._options.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _renew(self, error: KafkaError) -> None:
        """Takes this member's place in the group with another consumer, as the present one has given up.

        It does after a request of its former self, from before an outage, that came behind its return.
        """
        self._log.warn_once(f"election '{self._options.group}': {describe(error, self._settings)}")
        self._notify(self._leadership.lost(self._clock()))
        self._commit = None
        close(self._consumer, self._options.group)
        self._consumer = self._connect()
        self._subscribe()

    def _reopen(self) -> None:
        """Takes this member's place with a client that has read the certificates anew; drains before.

        The open connections would stay, but the next one that breaks could not be made again.
        """
        renewal = Renewal(self._settings)
        try:
            try_files(client_settings(self._options.kafka))
            consumer = self._connect()
        except OutboxError as error:
            self._renewal.postpone()
            text = f"election '{self._options.group}': changed certificates are not used yet: {error}"
            self._log.warn_once(text)
            return
        log.info("election '%s': certificates have changed; new clients use them", self._options.group)
        self._notify(self._leadership.revoked(self._clock()))
        self._leadership.ended()
        self._commit = None
        close(self._consumer, self._options.group)
        self._consumer, self._renewal = consumer, renewal
        self._subscribe()

    def _leave(self) -> None:
        """Lets the candidate drain while this process is still a member of the group, then leaves it."""
        if self._failure is None:
            self._notify(self._leadership.revoked(self._clock()))
            self._leadership.ended()
        else:
            self._notify(self._leadership.lost(self._clock()))
        leave(self._consumer)
        close(self._consumer, self._options.group)

    def _confirm(self) -> None:
        """Requests a confirmation if it is due.

        A refused process requests confirmations too, whether it leads or not: the answer shows when the
        permission is restored.
        """
        now = self._clock()
        wanted = self._leadership.owns or self._refusal_timeout.is_running
        # One at a time: the client keeps commits while it has no coordinator, and an answer to an old one
        # proves nothing.
        if wanted and self._commit is None and now >= self._confirm_at:
            self._confirm_at = now + self._options.confirm_interval
            self._count += 1
            self._commit = number, _, _ = (str(self._count), self._leadership.assignment, now)
            # The answer arrives during poll, so an unavailable broker does not block this thread.
            offset = TopicPartition(self._options.topic, _PARTITION, 0, metadata=number)
            self._consumer.commit(offsets=[offset], asynchronous=True)

    def _notify(self, events: Iterable[LeadershipEvent]) -> None:
        notify(self._candidate, events, log, self._options.group)

    def _on_message(self, message: Message) -> None:
        error = message.error()
        if error is None:
            return  # somebody else's record
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:  # noqa: SLF001 - librdkafka's spelling
            # Arrives before on_lost: the client left the group because this thread was blocked for too long.
            self._notify(self._leadership.lost(self._clock()))
        elif is_refusal(error):
            self._on_refusal(error)
        elif error.code() == KafkaError._FATAL:  # noqa: SLF001 - likewise
            self._renew(error)
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001
            self._create_topic_again()
        else:
            self._log.warn_once(f"election '{self._options.group}': {describe(error, self._settings)}")

    def _on_refusal(self, error: KafkaError) -> None:
        """Handles a refusal: logs the missing permission, and continues for a while."""
        self._refusal = error
        self._refusal_timeout.refused(self._clock())
        why = f"{describe(error, self._settings)}; {required(self._options)}"
        self._log.warn_once(
            f"election '{self._options.group}': {why}; trying again for {self._options.stop_after:g} s"
        )

    def _on_permitted(self) -> None:
        if self._refusal_timeout.is_running:
            self._refusal_timeout.permitted()
            log.info("election '%s': permitted again", self._options.group)

    def _fail(self, error: KafkaError, what: str) -> None:
        self._failure = driver_error(f"election '{self._options.group}': {what}", error, self._settings)

    def _create_topic_again(self) -> None:
        """Creates the topic again after somebody deleted it; on another thread, as a leader must not wait."""
        if self._topic_creator is None or not self._topic_creator.is_alive():
            creator = Thread(target=self._create_topic, name="neli-topic", daemon=True)
            creator.start()
            self._topic_creator = creator

    def _create_topic(self) -> None:
        try:
            ensure_topic(client_settings(self._options.kafka), self._options.topic)
        except OutboxError as error:
            self._log.warn_once(f"election '{self._options.group}': {error}")

    # --- callbacks, which the client runs during poll and close -------------------------------------

    def _on_assign(self, consumer: confluent_kafka.Consumer, partitions: Sequence[TopicPartition]) -> None:
        # Records do not matter, so the committed offset does not either.
        consumer.incremental_assign(
            [TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions]
        )
        if _names_leadership(partitions):
            self._commit = None
            self._confirm_at = float("-inf")
            self._notify(self._leadership.assigned(self._clock()))

    def _on_revoke(self, _consumer: confluent_kafka.Consumer, partitions: Sequence[TopicPartition]) -> None:
        if _names_leadership(partitions):
            self._notify(self._leadership.revoked(self._clock()))
            self._leadership.ended()

    def _on_lost(self, _consumer: confluent_kafka.Consumer, partitions: Sequence[TopicPartition]) -> None:
        if _names_leadership(partitions):
            self._notify(self._leadership.lost(self._clock()))

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        if self._commit is None or self._commit[0] not in [each.metadata for each in partitions]:
            return  # of an earlier assignment
        (_, assignment, sent_at), self._commit = self._commit, None
        failure = error or next((each.error for each in partitions if each.error is not None), None)
        if failure is not None and is_refusal(failure):
            self._on_refusal(failure)
            return
        if failure is None or failure.code() in _REBALANCING:
            self._on_permitted()
        if failure is None:
            now = self._clock()
            if now - sent_at > self._options.lease_duration:
                self._confirm_at = now  # it was kept until there was a coordinator
            self._notify(self._leadership.confirmed(assignment, sent_at, now))
            return
        self._confirm_at = min(self._confirm_at, self._clock() + _POLL_SECONDS)
        text = f"election '{self._options.group}': not confirmed: {describe(failure, self._settings)}"
        if failure.code() in _REBALANCING:
            log.debug("%s", text)
        else:
            self._log.warn_once(text)

    def _on_error(self, error: KafkaError) -> None:
        text = f"election '{self._options.group}': {describe(error, self._settings)}"
        if is_refusal(error) or concerns_all_brokers(error):
            self._log.warn_once(text)
        else:
            log.debug("%s", text)  # the client's log lines report errors of single connections


def _names_leadership(partitions: Iterable[TopicPartition]) -> bool:
    return any(each.partition == _PARTITION for each in partitions)
