"""Keeps a lane's producer for the lane's next sender, while requests of it may still be in the network.

When an idempotent producer drops a request whose outcome is unknown, it raises its epoch. A broker that has
accepted anything of the new epoch for a partition refuses delayed requests of the old epoch there. If the
next sender used another producer, the broker would accept a delayed request behind the new sender's records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock, Timer
from typing import Any

from confluent_kafka import KafkaError

from outbox_kafka.client.clients import ClientLog, Producer
from outbox_kafka.client.errors import is_tls_failure
from outbox_kafka.client.files import Renewal
from outbox_kafka.client.quotas import quota_of

_KEEP_SECONDS = 900.0
"""Seconds for which an unused producer is kept: about as long as a network may delay a request."""


class LaneProducer:
    """A producer with its log and its state."""

    def __init__(self, lane: str, settings: Mapping[str, Any]) -> None:
        self.key = _key(lane, settings)
        self.log = ClientLog()
        self.on_error: Callable[[KafkaError], None] = _ignore
        self.has_delivered = False
        self.is_refused = False  # TLS has failed since the last delivery: a certificate is not accepted
        self._unreported_until = 0.0
        self.renewal = Renewal(settings)
        own = {"logger": self.log, "error_cb": self._on_error, "throttle_cb": quota_of(settings["client.id"])}
        self.producer = Producer({**settings, **own})

    @property
    def has_unreported(self) -> bool:
        """Whether requests may be in the network for which there will be no report."""
        return time.monotonic() < self._unreported_until

    @property
    def must_stay(self) -> bool:
        """Whether no other producer may take its place, as only this one protects from such requests.

        One that cannot connect any more protects from nothing.
        """
        return self.has_unreported and not self.is_refused

    def note_unreported(self) -> None:
        """Notes that there may be such requests, from now for as long as a network may delay them."""
        self._unreported_until = time.monotonic() + _KEEP_SECONDS

    def forget_unreported(self) -> None:
        """Notes that this producer protects from such requests no more."""
        self._unreported_until = 0.0

    def _on_error(self, error: KafkaError) -> None:
        self.is_refused |= is_tls_failure(error)
        self.on_error(error)


class _Pool:
    """The producers that no sender uses at present, up to one for each lane."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: dict[object, tuple[LaneProducer, Timer]] = {}

    def take(self, key: object) -> LaneProducer | None:
        with self._lock:
            producer, timer = self._idle.pop(key, (None, None))
        if timer is not None:
            timer.cancel()
        return producer

    def put(self, producer: LaneProducer) -> None:
        timer = Timer(_KEEP_SECONDS, self._expire, (producer,))
        timer.daemon = True
        previous = self.take(producer.key)
        with self._lock:
            self._idle[producer.key] = producer, timer
        timer.start()
        if previous is not None:
            previous.producer.close()

    def _expire(self, producer: LaneProducer) -> None:
        with self._lock:
            if self._idle.get(producer.key, (None, None))[0] is not producer:
                return
            del self._idle[producer.key]
        producer.producer.close()


_pool = _Pool()


def acquire(lane: str, settings: Mapping[str, Any]) -> LaneProducer:
    """Returns the producer of the lane's previous sender, if it was kept, or a new one."""
    return _pool.take(_key(lane, settings)) or LaneProducer(lane, settings)


def release(producer: LaneProducer) -> None:
    """Keeps the producer of a closed sender if it has unreported requests, else closes it.

    Its queues must be empty.
    """
    producer.on_error = _ignore
    if producer.has_unreported:
        _pool.put(producer)
    else:
        producer.producer.close()


def _key(lane: str, settings: Mapping[str, Any]) -> object:
    return lane, frozenset((name, repr(value)) for name, value in settings.items())


def _ignore(_error: KafkaError) -> None:
    pass
