"""Who clients are: what each may do, and the tokens and sessions by which they say so."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from hashlib import sha256
from time import monotonic
from typing import NamedTuple

from outbox_api.errors import ConfigError
from outbox_api.file_text import FileText
from outbox_core.config.http import HttpSettings, Token, usable_token

log = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
"""For how long the file of a token is not read again."""
VIEWER = "viewer"
"""The name of whoever has a token of viewers, which have none."""

IDLE_SECONDS = 12 * 3600.0
"""After so long without a request a session is over."""
LONGEST_SECONDS = 24 * 3600.0
"""After so long a session is over in any case."""
MOST_OF_A_TOKEN = 100
"""With more sessions of one token, the one of them that has been idle for longest ends."""


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
    SESSION = auto()
    """By the cookie of a session, which ``POST /logout`` ends."""
    PROXY = auto()
    """The proxy named the user."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks.

    Attributes:
        name: The operator's name, or that of the proxy's user; the journal notes it. ``viewer`` for a token
            without a name; empty where everybody may read.
        role: What it may do.
        means: How it said who it is.
    """

    name: str
    role: Role
    means: Means


class Bearer(NamedTuple):
    """Whom a token stands for."""

    name: str
    role: Role


def digest(token: str) -> bytes:
    """Returns what is compared and remembered in place of a token."""
    return sha256(token.encode()).digest()


class Tokens:
    """Knows whom each token stands for now; used by one thread.

    Files are read again, at most once a second. A token whose file cannot be read, or holds no usable token,
    stands for nobody until it does; that is logged once.

    Args:
        settings: The tokens.
        clock: Returns seconds that never go back.
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
        """Returns whom a token stands for; ``None`` for nobody.

        Args:
            given: The token's digest.
        """
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


@dataclass(slots=True)
class _Session:
    token: bytes
    begun_at: float
    used_at: float


class Sessions:
    """The sessions of this process, in memory only; used by one thread.

    A session remembers the digest of the token that it was begun with. So it ends with that token.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}  # the one that is idle for longest first

    def begin(self, token: bytes) -> str:
        """Begins a session; returns its id, which is stored nowhere.

        Args:
            token: The digest of the token.
        """
        identity, now = secrets.token_urlsafe(32), self._clock()
        self._sessions[_key(identity)] = _Session(token, now, now)
        of_token = [key for key, session in self._sessions.items() if session.token == token]
        if len(of_token) > MOST_OF_A_TOKEN:
            del self._sessions[of_token[0]]
        return identity

    def token(self, identity: str) -> bytes | None:
        """Returns the digest of a session's token, and has it go on; ``None`` if there is no such session."""
        session = self._sessions.pop(_key(identity), None)
        now = self._clock()
        if (
            session is None
            or now - session.used_at >= IDLE_SECONDS
            or now - session.begun_at >= LONGEST_SECONDS
        ):
            return None
        session.used_at = now
        self._sessions[_key(identity)] = session
        return session.token

    def end(self, identity: str) -> None:
        """Ends a session, if there is such a one."""
        self._sessions.pop(_key(identity), None)


def _key(identity: str) -> bytes:
    return sha256(identity.encode()).digest()
