"""A lane's producer, which outlives a sender that leaves doubts behind, for the next sender of the lane.

When an idempotent producer drops a request whose outcome is unknown it raises its epoch, and a broker that
has taken anything of the new epoch into a partition refuses there what was delayed of the old one. Had the
next sender another producer, the delayed request would be taken, and arrive behind what that one has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock, Timer
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from outbox_kafka.client_log import ClientLog
from outbox_kafka.settings import config_error

_KEPT = 900.0
"""Seconds for which a producer is kept: about as long as a network may hold on to what was sent."""


class Client:
    """A producer and what is known of it.

    Attributes:
        producer: librdkafka's, idempotent.
        log: Where its log lines go.
        heed: Takes its errors, during ``poll``.
        proven: Whether anything was ever delivered.
        doubtful: Whether anything may be under way that no report will be heard of.
    """

    def __init__(self, lane: str, settings: Mapping[str, Any]) -> None:
        """Makes the producer; it connects on its own.

        Args:
            lane: The lane's name.
            settings: librdkafka's settings, complete.

        Raises:
            ConfigError: librdkafka refuses the settings.
        """
        self.key = _key(lane, settings)
        self.log = ClientLog()
        self.heed: Callable[[KafkaError], None] = _ignore
        self.proven = self.doubtful = False
        try:
            self.producer = Producer({**settings, "logger": self.log, "error_cb": self._hear})
        except KafkaException as error:
            raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret

    def _hear(self, error: KafkaError) -> None:
        self.heed(error)


class _Kept:
    """The clients that nobody has at present, one of each lane."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clients: dict[object, tuple[Client, Timer]] = {}

    def take(self, key: object) -> Client | None:
        with self._lock:
            client, timer = self._clients.pop(key, (None, None))
        if timer is not None:
            timer.cancel()
        return client

    def put(self, client: Client) -> None:
        timer = Timer(_KEPT, self._drop, (client,))
        timer.daemon = True
        before = self.take(client.key)
        with self._lock:
            self._clients[client.key] = client, timer
        timer.start()
        if before is not None:
            before.producer.close()

    def _drop(self, client: Client) -> None:
        with self._lock:
            if self._clients.get(client.key, (None, None))[0] is not client:
                return
            del self._clients[client.key]
        client.producer.close()


_kept = _Kept()


def connect(lane: str, settings: Mapping[str, Any]) -> Client:
    """Returns the client that the lane's sender before has left, or a new one.

    Raises:
        ConfigError: librdkafka refuses the settings.
    """
    return _kept.take(_key(lane, settings)) or Client(lane, settings)


def leave(client: Client) -> None:
    """Takes a client whose sender is closed, and in whose queues nothing is left."""
    client.heed = _ignore
    if client.doubtful:
        _kept.put(client)
    else:
        client.producer.close()


def _key(lane: str, settings: Mapping[str, Any]) -> object:
    return lane, frozenset((name, repr(value)) for name, value in settings.items())


def _ignore(_error: KafkaError) -> None:
    pass
