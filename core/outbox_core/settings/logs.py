"""What is logged, and what log lines call the keys of records, which may be personal data."""

import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from outbox_api.base.errors import ConfigError
from outbox_api.seams.parking import LONGEST_KEY, is_cut

DIGITS = 12
"""Of a hash: enough to tell millions of keys apart."""


@dataclass(frozen=True, slots=True)
class KeyNames:
    """Names keys: as they are, or by a hash that nobody without the secret can look up.

    Attributes:
        secret: What the hash is made with; empty to leave keys as they are.
    """

    secret: str = field(default="", repr=False)

    @property
    def hashed(self) -> bool:
        """Whether keys are named by hashes."""
        return bool(self.secret)

    def of(self, key: str) -> str:
        """Returns the name of a key; the same one for the same key and secret. Long keys are cut."""
        if not self.secret:
            return f"{key[:LONGEST_KEY]!r}{'…' if is_cut(key) else ''}"
        digest = hmac.digest(self.secret.encode(), key.encode("utf-8", "surrogatepass"), "sha256")
        return f"#{digest.hex()[:DIGITS]}"

    def of_listed(self, key: str) -> str:
        """Returns the name of a key of a list of dead letters; empty if only the whole key would tell it."""
        return "" if self.secret and is_cut(key) else self.of(key)


class LogLevel(StrEnum):
    """How much is logged."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"

    @classmethod
    def _missing_(cls, value: object) -> "LogLevel | None":
        name = str(value).lower()
        return next((level for level in cls if name in {level.value, f"{level.value}ing"}), None)


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"

    @classmethod
    def _missing_(cls, value: object) -> "LogFormat | None":
        return next((each for each in cls if each.value == str(value).lower()), None)


SHORTEST_SECRET = 16
"""Characters of a secret that nobody guesses."""


@dataclass(frozen=True)
class LoggingSettings:
    """What is logged.

    Attributes:
        level: The lowest level that is logged.
        format: How lines are written.
        keys: How log lines name keys of records: ``plain``, or by a ``hash``.
        key_secret: What hashes are made with: the same for all processes of an outbox, known to nobody else.
    """

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT
    keys: Literal["plain", "hash"] = "plain"
    key_secret: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.keys == "hash" and len(self.key_secret or "") < SHORTEST_SECRET:
            raise ConfigError(
                f"keys is 'hash', so keySecret must be a random text of {SHORTEST_SECRET} characters or "
                "more, for example of 'openssl rand -hex 32'; write it as ${VARIABLE}"
            )

    @property
    def key_names(self) -> KeyNames:
        """What log lines call keys."""
        return KeyNames((self.key_secret or "") if self.keys == "hash" else "")
