"""The consumer: reads the topic while it is written, and notes when what arrived."""

from collections import Counter
from threading import Event, Lock, Thread
from time import monotonic

from confluent_kafka import Consumer, KafkaException, Message
from outbox_sdk import OutboxError

from outbox_core.demo.script import TOPIC

_BATCH = 500
_GLANCE = 0.05
_RATE_SECONDS = 3
"""Over how many seconds the present rate is taken."""


class Downstream:
    """Reads every message of the topic from its beginning, on a thread of its own.

    Args:
        bootstrap: The broker.
    """

    def __init__(self, bootstrap: str) -> None:
        self.delivered = 0
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "downstream",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._lock = Lock()
        self._arrivals: list[tuple[float, float]] = []  # when sent (wall clock), when here (monotonic)
        self._per_second: Counter[int] = Counter()
        self._ending = Event()
        self._error: Exception | None = None
        self._thread = Thread(target=self._run, name="downstream", daemon=True)

    def start(self) -> None:
        """Starts to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stops to read."""
        self._ending.set()
        self._thread.join()

    def check(self) -> None:
        """Makes sure that the topic can be read.

        Raises:
            OutboxError: It cannot.
        """
        if self._error is not None:
            raise OutboxError(f"the consumer cannot read the topic: {self._error}") from self._error

    def forget(self) -> None:
        """Forgets when messages arrived, so that :meth:`first_since` looks only at what comes from now on."""
        with self._lock:
            self._arrivals.clear()

    def first_since(self, instant: float) -> float | None:
        """Returns when, on the monotonic clock, the first message arrived that was sent since ``instant``.

        Args:
            instant: Seconds since the epoch.
        """
        with self._lock:
            return next((arrived for sent, arrived in self._arrivals if sent >= instant), None)

    def rate(self) -> float:
        """Returns how many messages a second arrived lately."""
        now = int(monotonic())
        with self._lock:
            return (
                sum(self._per_second[now - second] for second in range(1, _RATE_SECONDS + 1)) / _RATE_SECONDS
            )

    def mean_rate(self) -> float:
        """Returns how many messages a second arrived from the first second with one to the last."""
        with self._lock:
            seconds = self._per_second
            return self.delivered / (max(seconds) - min(seconds) + 1) if seconds else 0.0

    def highest_rate(self) -> int:
        """Returns the most messages that arrived in one second."""
        with self._lock:
            return max(self._per_second.values(), default=0)

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.subscribe([TOPIC])
            while not self._ending.is_set():
                for message in consumer.consume(_BATCH, _GLANCE):
                    self._note(message, monotonic())
        except KafkaException as error:
            self._error = error
        finally:
            consumer.close()

    def _note(self, message: Message, arrived: float) -> None:
        if error := message.error():
            raise KafkaException(error)
        with self._lock:
            self.delivered += 1
            self._arrivals.append((message.timestamp()[1] / 1000, arrived))
            self._per_second[int(arrived)] += 1
