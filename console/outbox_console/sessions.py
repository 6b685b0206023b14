"""Sessions of browsers: a cookie in place of a token that would have to be typed again and again."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic

IDLE_SECONDS = 12 * 3600.0
"""After so long without a request a session is over."""
LONGEST_SECONDS = 24 * 3600.0
"""After so long a session is over in any case."""
MOST_OF_A_TOKEN = 100
"""With more sessions of one token, the one of them that has been idle for longest ends."""


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
