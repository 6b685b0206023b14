"""Settings that are in files: read at each opening of a client, and watched for changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from outbox_api import ConfigError, DriverError, FileText, present_text

from outbox_kafka.client.tokens import TOKENS, token_function

SIGN_IN: Final = ("sasl.username", "sasl.password")
"""What a client can be given anew while it lives."""

_LOCATIONS: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.keystore.location",
)

_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 5.0
"""Seconds before files that could not be used are tried again."""

Stamps = tuple[tuple[int, int, int] | None, ...]
"""What changes when files are written or replaced."""


def present(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings with the present content of the files to which they refer, for a client to use.

    ``oauth_cb`` becomes the function that it names: names travel to other processes, functions may not.
    """
    try:
        content: dict[str, Any] = {name: present_text(value) for name, value in settings.items()}
    except ConfigError as error:
        raise DriverError(str(error), retryable=True) from None
    if isinstance(name := content.get(TOKENS), str):
        content[TOKENS] = token_function(name)
    return content


def paths(value: object) -> list[Path]:
    """Returns the files to which the value of a setting refers."""
    return [part for part in value.parts if isinstance(part, Path)] if isinstance(value, FileText) else []


def stamps(files: Iterable[Path]) -> Stamps:
    """Returns a stamp of each file; ``None`` for one that cannot be seen."""
    return tuple(map(_stamp, files))


class Renewal:
    """Says when a client must be opened anew, since librdkafka reads certificates only then.

    Used by one thread.
    """

    def __init__(self, settings: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        """Looks at the files; to be made before the client, which reads them."""
        referred = [file for name, value in settings.items() if name not in SIGN_IN for file in paths(value)]
        located = [Path(value) for name in _LOCATIONS if isinstance(value := settings.get(name), str)]
        self._files = [*located, *referred]
        self._clock = clock
        self._opened = stamps(self._files)
        self._look_at = clock() + _LOOK_SECONDS

    def is_due(self) -> bool:
        """Returns whether a file has changed since the client was opened; looks once a second at most."""
        now = self._clock()
        if not self._files or now < self._look_at:
            return False
        self._look_at = now + _LOOK_SECONDS
        return stamps(self._files) != self._opened

    def postpone(self) -> None:
        """Says nothing for the next five seconds: the files cannot be used yet."""
        self._look_at = self._clock() + _RETRY_SECONDS


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
