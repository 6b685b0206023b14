"""librdkafka's clients; each gets a new user or password as soon as the files change that contain them.

librdkafka uses them for its next connection, or when the broker asks for them again. Open connections stay.
One thread looks at the files of all clients of this process; it exists while there is such a client.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, Protocol

import confluent_kafka
from confluent_kafka import KafkaException
from outbox_api import DriverError, Finding
from outbox_api.support.context_thread import repeat
from outbox_api.support.tls import Protection, host_of, transport_finding

from outbox_kafka.client.errors import describe, without_guess
from outbox_kafka.client.files import SIGN_IN, Stamps, paths, present, stamps
from outbox_kafka.client.settings import config_error

LOGGER = logging.getLogger("outbox.kafka")

_REPEAT_SECONDS = 30.0
"""Seconds during which an identical line is not logged as a warning again."""


class ClientLog:
    """Receives a client's log lines as its ``logger``; the client calls ``log`` from ``poll`` only."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def log(self, level: int, template: str, facility: str, client: str, line: str) -> None:
        """Logs one line of librdkafka, which keeps secrets out of it."""
        if facility == "CONFWARN":
            # Producers and consumers share the settings: each ignores those of the other, as intended.
            level = logging.DEBUG
        elif facility == "GETPID":
            # The client asks a broker that has only just started again; if it never answers, deliveries fail.
            level = min(level, logging.INFO)
        elif facility in ("ADDOFFSETS", "ADDPARTS", "FATAL", "METADATAUPDATE", "TXNERR"):
            # Errors of a transaction, or of the producer as a whole, are raised or returned.
            level = logging.DEBUG
        elif facility in ("FAIL", "ERROR"):
            # The client reconnects. The consequences show in delivery reports or in the election's state.
            level = logging.DEBUG if self._is_repeated(line) else min(level, logging.WARNING)
        LOGGER.log(level, template, facility, client, without_guess(line))

    def warn_once(self, line: str) -> None:
        """Logs ``line`` as a warning; at debug level if it was logged within the last 30 s."""
        LOGGER.log(logging.DEBUG if self._is_repeated(line) else logging.WARNING, "%s", line)

    def debug(self, line: str) -> None:
        """Logs ``line`` at debug level."""
        LOGGER.debug("%s", line)

    def _is_repeated(self, line: str) -> bool:
        """Returns whether ``line`` was logged a short while ago; if not, remembers it from now."""
        now = monotonic()
        if now - self._logged_at.get(line, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return True
        self._logged_at = {line: at for line, at in self._logged_at.items() if now - at < _REPEAT_SECONDS}
        self._logged_at[line] = now
        return False


_LOOK_SECONDS: Final = 1.0


class Client(Protocol):
    """A client of confluent-kafka."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Sets what the client's next connection uses."""


@dataclass
class _Watched:
    client: weakref.ref[Client]
    settings: Mapping[str, Any]
    files: list[Path]
    stamps: Stamps
    given: tuple[str, str]


class _Watch:
    """The clients whose files are watched."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._watched: list[_Watched] = []
        self._thread: Thread | None = None
        self._log = ClientLog()

    def add(self, watched: _Watched) -> None:
        with self._lock:
            self._watched.append(watched)
            if self._thread is None or not self._thread.is_alive():  # it is not, too, in a forked process
                thread = Thread(target=self._run, args=(Event(),), name="outbox-kafka-sign-in", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self, ended: Event) -> None:
        complaint = "cannot look at the files with users and passwords"
        repeat(lambda: self._look_at_all(ended), ended, _LOOK_SECONDS, LOGGER, complaint)

    def _look_at_all(self, ended: Event) -> None:
        with self._lock:
            self._watched = [each for each in self._watched if each.client() is not None]
            if not self._watched:
                self._thread = None
                ended.set()
            watched = list(self._watched)
        for each in watched:
            try:
                self._look(each)
            except RuntimeError as error:  # the client is closed, or being closed
                self._log.debug(f"a client was not given its new password: {error}")
            except Exception as error:  # noqa: BLE001 - what is wrong with one is nothing to the others
                self._log.warn_once(f"the former user and password stay in use: {error}")

    def _look(self, watched: _Watched) -> None:
        now = stamps(watched.files)
        if now == watched.stamps:
            return
        user, password = _credentials(watched.settings)
        watched.stamps = now
        client = watched.client()
        if client is None or (user, password) == watched.given:
            return
        client.set_sasl_credentials(user, password)
        watched.given = (user, password)
        LOGGER.info(
            "%s: signs in with a new password from now on", watched.settings.get("client.id", "a client")
        )


_watch = _Watch()


def keep_signed_in(
    client: Client, settings: Mapping[str, Any], given: Mapping[str, Any], seen: Stamps
) -> None:
    """Gives the client its user and password anew whenever a file with them changes, as long as it lives.

    It was opened with ``given``, which was read after ``seen``.
    """
    if files := sign_in_files(settings):
        user, password = (str(given.get(name) or "") for name in SIGN_IN)
        _watch.add(_Watched(weakref.ref(client), settings, files, seen, (user, password)))


def sign_in_files(settings: Mapping[str, Any]) -> list[Path]:
    """Returns the files that contain the user or the password."""
    return [file for name in SIGN_IN for file in paths(settings.get(name))]


def _credentials(settings: Mapping[str, Any]) -> tuple[str, str]:
    content = present({name: settings.get(name) or "" for name in SIGN_IN})
    return content[SIGN_IN[0]], content[SIGN_IN[1]]


_CONNECT_SECONDS: Final = 1.5
"""Seconds in which a client with new files must reach a broker."""


def _open(client: Client, settings: Mapping[str, Any], create: Callable[..., None]) -> None:
    seen = stamps(sign_in_files(settings))
    content = present(settings)
    try:
        create(content)
    except KafkaException as error:
        raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret
    keep_signed_in(client, settings, content, seen)


class Producer(confluent_kafka.Producer):
    """A producer that reads its files when it is opened, and its password again whenever that changes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Opens the producer; raises an ``OutboxError`` if settings or files cannot be used."""
        _open(self, settings, super().__init__)


class Consumer(confluent_kafka.Consumer):
    """A consumer that does the same."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Opens the consumer, see :class:`Producer`."""
        _open(self, settings, super().__init__)


def try_files(settings: Mapping[str, Any]) -> None:
    """Makes sure that a broker can be reached with the present files of the settings; takes up to 1.5 s."""
    own = {name: value for name, value in settings.items() if name not in ("transactional.id", "logger")}
    producer = Producer({**own, "logger": ClientLog(), "error_cb": lambda _error: None})
    try:
        producer.list_topics(timeout=_CONNECT_SECONDS)
    except KafkaException as error:
        raise DriverError(describe(error.args[0], settings), retryable=True) from error


_OFF = ("false", "f", "0")


def transport_findings(settings: Mapping[str, Any], subject: str) -> Sequence[Finding]:
    """Judges the connections of a client by its settings."""
    protocol = str(settings.get("security.protocol") or "plaintext").lower()
    sasl = protocol.startswith("sasl")
    protection, setting, cure = _judged(settings, protocol, encrypted="sasl_ssl" if sasl else "ssl")
    crossing = "records and what proves the password cross" if sasl else "records cross"
    return transport_finding(_hosts(settings), protection, setting, cure, subject=subject, crossing=crossing)


def _judged(settings: Mapping[str, Any], protocol: str, encrypted: str) -> tuple[Protection, str, str]:
    """Returns what protects the connections, the setting because of which it is no more, and the cure."""
    authority = "set ssl.ca.location to the file of the authority that signed the brokers' certificates"
    if protocol in ("plaintext", "sasl_plaintext"):
        cure = f"set security.protocol to {encrypted}, and {authority}"
        return Protection.NONE, f"security.protocol is {protocol}", cure
    name = "enable.ssl.certificate.verification"
    if str(settings.get(name, "true")).lower() in _OFF:
        return Protection.ENCRYPTED, f"{name} is false", f"remove {name}, and {authority}"
    name = "ssl.endpoint.identification.algorithm"
    if str(settings.get(name, "https")).lower() == "none":
        cure = f"remove {name}; the brokers need certificates for the names that they advertise"
        return Protection.AUTHORITY, f"{name} is none", cure
    return Protection.VERIFIED, "", ""


def _hosts(settings: Mapping[str, Any]) -> Sequence[str]:
    """Returns the hosts of ``bootstrap.servers``, each once, in their order."""
    addresses = str(settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or "")
    return list(dict.fromkeys(host_of(each.strip()) for each in addresses.split(",") if each.strip()))
