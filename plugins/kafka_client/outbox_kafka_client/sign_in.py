"""Gives clients a new user or password as soon as the files change that contain them.

librdkafka uses them for its next connection, or when the broker asks for them again. Open connections stay.
One thread looks at the files of all clients of this process; it exists while there is such a client.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from time import sleep
from typing import Any, Final, Protocol

from outbox_sdk import DriverError

from outbox_kafka_client.client_log import ClientLog
from outbox_kafka_client.files import SIGN_IN, Stamps, paths, present, stamps

log = logging.getLogger("outbox.kafka")

_LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the files."""


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
                self._thread = Thread(target=self._run, name="outbox-kafka-sign-in", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            sleep(_LOOK_SECONDS)
            with self._lock:
                self._watched = [each for each in self._watched if each.client() is not None]
                if not self._watched:
                    self._thread = None
                    return
                watched = list(self._watched)
            for each in watched:
                self._look(each)

    def _look(self, watched: _Watched) -> None:
        now = stamps(watched.files)
        if now == watched.stamps:
            return
        try:
            user, password = _credentials(watched.settings)
        except DriverError as error:
            self._log.warn_once(f"the former user and password stay in use: {error}")
            return
        watched.stamps = now
        client = watched.client()
        if client is None or (user, password) == watched.given:
            return
        client.set_sasl_credentials(user, password)
        watched.given = (user, password)
        log.info(
            "%s: signs in with a new password from now on", watched.settings.get("client.id", "a client")
        )


_watch = _Watch()


def keep_signed_in(
    client: Client, settings: Mapping[str, Any], given: Mapping[str, Any], seen: Stamps
) -> None:
    """Gives the client its user and password anew whenever a file with them changes, as long as it lives.

    Args:
        client: The client, which weak references can refer to.
        settings: Its settings, with the references to files.
        given: The settings with the content that the client was opened with.
        seen: The stamps of :func:`sign_in_files` from before the content was read.
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
