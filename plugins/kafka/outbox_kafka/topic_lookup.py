"""Buffers records while their topics are looked up, so that a missing topic does not delay other records.

In librdkafka, a record to a missing topic fails after ``topic.metadata.propagation.max.ms`` (5 s), and counts
as in flight until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeVar

from confluent_kafka import KafkaError
from outbox_api import MarkedRecord

from outbox_kafka.topic_cache import MISSING_TOPIC, LookUp, Statuses, TopicCache, TopicStatus

Result = TypeVar("Result")


class BackgroundCalls:
    """Runs one call after the other; used by one thread, which waits in ``close`` only.

    A background thread exists only while there are calls to run.
    """

    def __init__(self) -> None:
        self._calls: list[Callable[[], Callable[[], None]]] = []
        self._results: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: Thread | None = None

    def __bool__(self) -> bool:
        """Returns whether the result of any call has not been handled yet."""
        return self._thread is not None

    def submit(self, call: Callable[[], Result], on_result: Callable[[Result], None]) -> None:
        """Queues a call."""

        def run() -> Callable[[], None]:
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - the thread that waits for it raises it
                return partial(_raise, error)
            return lambda: on_result(result)

        self._calls.append(run)
        self._start()

    def poll(self) -> None:
        """Handles a result, if there is one; does not wait. Raises what a call has raised."""
        try:
            handle = self._results.get_nowait()
        except Empty:
            return
        self._thread = None
        try:
            handle()
        finally:
            self._start()

    def close(self) -> None:
        """Waits for the current call, and discards its result and all further calls. Idempotent."""
        self._calls.clear()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._calls and self._thread is None:
            run = self._calls.pop(0)
            thread = Thread(
                target=lambda: self._results.put(run()), name="outbox-kafka-background", daemon=True
            )
            thread.start()  # fails at a limit of threads; then nothing may wait for it
            self._thread = thread


def _raise(error: Exception) -> None:
    raise error


_MAX_BUFFERED_SECONDS: Final = 2.0
"""Seconds after which a buffered record is not sent any more. Its lane has stood still, and may not be the
current one any more: the record could arrive behind records of the lane's successor.
"""
_INVALID_NAME: Final = KafkaError(KafkaError.TOPIC_EXCEPTION)
_TOO_LATE: Final = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's spelling


class TopicLookup:
    """Decides what happens to a record whose topic is not known to exist: buffer, produce, or refuse."""

    def __init__(
        self,
        cache: TopicCache,
        look_up: LookUp,
        background: BackgroundCalls,
        produce: Callable[[Sequence[MarkedRecord]], None],
        refuse: Callable[[Sequence[MarkedRecord], KafkaError, bool], None],
    ) -> None:
        """Starts without records; ``produce`` receives those of a topic in the order of :meth:`add`."""
        self.existing = cache.existing
        self._cache = cache
        self._look_up = look_up
        self._background = background
        self._produce = produce
        self._refuse = refuse
        self._buffered: dict[str, list[MarkedRecord]] = {}
        self._since: dict[str, float] = {}
        self._looking_up: set[str] = set()

    def __bool__(self) -> bool:
        """Returns whether any record is buffered."""
        return bool(self._buffered)

    def add(self, record: MarkedRecord) -> None:
        """Buffers a record whose topic is not known to exist, or refuses it if the topic is missing."""
        topic = record.topic
        if topic in self._buffered:
            self._buffered[topic].append(record)
        elif self._cache.is_missing(topic):
            self._refuse_missing([record])
        else:
            self._buffered[topic], self._since[topic] = [record], time.monotonic()

    def start(self) -> None:
        """Looks up the topics of the buffered records, unless a look-up is running."""
        if not self._looking_up and self._buffered:
            self._looking_up = set(self._buffered)
            new = {topic for topic in self._looking_up if self._cache.is_new(topic)}
            self._background.submit(partial(self._look_up, self._looking_up, new), self._on_statuses)

    def on_missing(self, record: MarkedRecord) -> None:
        """Receives a record that was produced, and that failed in the client because its topic is missing."""
        self._cache.set_missing(record.topic)
        self._refuse_missing([record])

    def _refuse_missing(self, records: Sequence[MarkedRecord]) -> None:
        self._refuse(records, MISSING_TOPIC, self._cache.may_appear(records[0].topic))

    def _on_statuses(self, statuses: Statuses) -> None:
        self._cache.update(statuses)
        self._looking_up = set()
        now = time.monotonic()
        for topic, status in statuses.items():
            records = self._buffered.pop(topic)
            too_late = now - self._since.pop(topic) > _MAX_BUFFERED_SECONDS
            if status is TopicStatus.MISSING:
                self._refuse_missing(records)
            elif status is TopicStatus.INVALID_NAME:
                self._refuse(records, _INVALID_NAME, False)
            elif too_late or (status is TopicStatus.UNKNOWN and self._cache.is_stale(topic)):
                self._refuse(records, _TOO_LATE, True)
            else:
                self._produce(records)
        self.start()
