"""The consumer: reads the topic while harvesters write it, and records when messages arrive."""

from collections import Counter
from threading import Event, Lock, Thread
from time import monotonic

from confluent_kafka import Consumer, KafkaException, Message
from outbox_api import OutboxError

from outbox_demo.options import TOPIC

_BATCH = 500
_POLL_SECONDS = 0.05
_RATE_SECONDS = 3
"""Seconds over which the current rate is averaged."""


class TopicReader:
    """Reads every message of the topic from its beginning, on its own thread.

    ``delivered`` counts the messages.

    Args:
        bootstrap: The broker's address.
    """

    def __init__(self, bootstrap: str) -> None:
        self.delivered = 0
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._lock = Lock()
        self._arrivals: list[tuple[float, float]] = []  # when sent (wall clock), when here (monotonic)
        self._per_second: Counter[int] = Counter()
        self._ending = Event()
        self._error: Exception | None = None
        self._thread = Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        """Starts reading."""
        self._thread.start()

    def stop(self) -> None:
        """Stops reading; waits for the thread."""
        self._ending.set()
        self._thread.join()

    def check(self) -> None:
        """Makes sure that the topic could be read so far.

        Raises:
            OutboxError: It could not.
        """
        if self._error is not None:
            raise OutboxError(f"the consumer cannot read the topic: {self._error}") from self._error

    def reset_arrivals(self) -> None:
        """Discards the recorded arrivals, so that :meth:`first_since` sees later ones only."""
        with self._lock:
            self._arrivals.clear()

    def first_since(self, instant: float) -> float | None:
        """Returns the arrival time (monotonic clock) of the first message sent at ``instant`` or later.

        Args:
            instant: Seconds since the epoch.
        """
        with self._lock:
            return next((arrived for sent, arrived in self._arrivals if sent >= instant), None)

    def rate(self) -> float:
        """Returns the current rate, in messages per second."""
        now = int(monotonic())
        with self._lock:
            return (
                sum(self._per_second[now - second] for second in range(1, _RATE_SECONDS + 1)) / _RATE_SECONDS
            )

    def mean_rate(self) -> float:
        """Returns the mean rate between first and last message, in messages per second."""
        with self._lock:
            seconds = self._per_second
            return self.delivered / (max(seconds) - min(seconds) + 1) if seconds else 0.0

    def highest_rate(self) -> int:
        """Returns the largest number of messages that arrived in one second."""
        with self._lock:
            return max(self._per_second.values(), default=0)

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.subscribe([TOPIC])
            while not self._ending.is_set():
                for message in consumer.consume(_BATCH, _POLL_SECONDS):
                    self._count(message, monotonic())
        except KafkaException as error:
            self._error = error
        finally:
            consumer.close()

    def _count(self, message: Message, arrived: float) -> None:
        if error := message.error():
            raise KafkaException(error)
        with self._lock:
            self.delivered += 1
            self._arrivals.append((message.timestamp()[1] / 1000, arrived))
            self._per_second[int(arrived)] += 1
