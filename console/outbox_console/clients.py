"""Who clients are: what each may do, and the tokens by which they say so."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from hashlib import sha256
from time import monotonic
from typing import NamedTuple

from outbox_api.base.errors import ConfigError
from outbox_api.support.file_text import FileText
from outbox_core.settings.http import HttpSettings, Token, usable_token

log = logging.getLogger("outbox.console")

FRESH_SECONDS = 1.0
"""For how long the file of a token is not read again."""
VIEWER = "viewer"
"""The name of whoever has a token of viewers, which have none."""


class Role(IntEnum):
    """What a client may do; a greater role includes the lesser ones."""

    VIEWER = 1
    """Reads."""
    OPERATOR = 2
    """Also changes something."""


class Means(Enum):
    """How a client said who it is."""

    NONE = auto()
    """Not at all: everybody may read here."""
    BEARER = auto()
    """By a token in the header ``Authorization``, which no browser adds by itself."""
    BASIC = auto()
    """By a token as a password there, which a browser adds to every request once somebody has typed it."""
    PROXY = auto()
    """The proxy named the user."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks."""

    name: str
    """The operator's name, or that of the proxy's user; the journal notes it. ``viewer`` for a token without
    a name; empty where everybody may read."""
    role: Role  # what it may do
    means: Means  # how it said who it is


class Bearer(NamedTuple):
    """Whom a token stands for."""

    name: str
    role: Role


def digest(token: str) -> bytes:
    """Returns what is compared in place of a token."""
    return sha256(token.encode()).digest()


class Tokens:
    """Knows whom each token stands for now; used by one thread.

    Files are read again, at most once a second. A token whose file cannot be read, or holds no usable token,
    stands for nobody until it does; that is logged once.
    """

    def __init__(self, settings: HttpSettings, clock: Callable[[], float] = monotonic) -> None:
        named = [("viewerTokens", VIEWER, Role.VIEWER, each) for each in settings.viewer_tokens]
        named += [
            (f"operatorTokens.{name}", name, Role.OPERATOR, each)
            for name, each in settings.operator_tokens.items()
        ]
        self._entries = [_Entry(f"http.{key}", Bearer(name, role), token) for key, name, role, token in named]
        self._clock = clock
        self._read_at = float("-inf")
        self._present: Sequence[tuple[bytes, Bearer]] = ()

    def bearer(self, given: bytes) -> Bearer | None:
        """Returns whom the token of a digest stands for; ``None`` for nobody."""
        if self._clock() - self._read_at >= FRESH_SECONDS:
            self._present = [(known, each.bearer) for each in self._entries if (known := each.read())]
            self._read_at = self._clock()
        # All are compared, each in the same time, so that the time tells nothing.
        found = [bearer for known, bearer in self._present if hmac.compare_digest(given, known)]
        return max(found, key=lambda bearer: bearer.role, default=None)


class _Entry:
    """One token of the configuration."""

    def __init__(self, key: str, bearer: Bearer, token: Token) -> None:
        self.bearer = bearer
        self._key = key
        self._token = token
        self._fixed = None if isinstance(token, FileText) else digest(token)
        self._is_usable = True

    def read(self) -> bytes | None:
        """Returns the digest of the token as it is now; ``None`` if it is no use."""
        if self._fixed is not None:
            return self._fixed
        try:
            known = digest(usable_token(self._token, self._key))
        except ConfigError as error:
            if self._is_usable:
                log.error("%s lets nobody in for now: %s", self._key, error)  # noqa: TRY400 - the message says it all
            self._is_usable = False
            return None
        if not self._is_usable:
            log.info("%s has a usable token again", self._key)
        self._is_usable = True
        return known
