"""Which dead letters are meant: what commands, the JSON side and pages filter by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Self

from outbox_api.base.errors import ConfigError
from outbox_api.seams.parking import LONGEST_KEY, DeadLetter, listed_key

from outbox_core.settings.logs import KeyNames
from outbox_core.text.duration import parse_duration
from outbox_core.text.moment import parse_time
from outbox_core.text.printable import printable
from outbox_core.text.wording import date_clock_and_zone, duration


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Conditions on dead letters, of which all hold together; without any, all letters are meant.

    Attributes:
        key: The key, whole; ``None`` for any.
        key_prefix: What the key begins with.
        key_in_logs: What log lines call the key. Of a key that is cut in lists, a hash is not known.
        topic: The topic; ``None`` for any.
        reason: What the reason contains, in capital or small letters.
        older_than: For how many seconds it has been parked, or skipped, at least.
        younger_than: For how many at most.
        since: It was parked, or skipped, then or later, by the database's clock.
        until: Then or earlier.
    """

    key: str | None = None
    key_prefix: str = ""
    key_in_logs: str = ""
    topic: str | None = None
    reason: str = ""
    older_than: float | None = None
    younger_than: float | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, texts: Mapping[str, str | None]) -> Self:
        """Reads it from texts by the names of its attributes; durations as ``1h30m``, times in ISO 8601.

        Raises:
            ConfigError: One cannot be read, or there is no condition of its name.
        """
        if unknown := set(texts) - set(cls.names()):
            raise ConfigError(f"dead letters have no condition '{printable(min(unknown))}'")
        given = {name: text for name, text in texts.items() if text is not None}
        if len(given.get("key_prefix", "")) > LONGEST_KEY:
            raise ConfigError(f"key_prefix: {LONGEST_KEY:,} characters are the most")
        return cls(**{name: _read(name, text) for name, text in given.items()})

    @classmethod
    def names(cls) -> Sequence[str]:
        """Returns the names of the conditions."""
        return [each.name for each in fields(cls)]

    @property
    def keys(self) -> Sequence[str]:
        """The keys of which letters are to be read; none for all."""
        return () if self.key is None else (self.key,)

    def chosen(self, letters: Sequence[DeadLetter], names: KeyNames) -> list[DeadLetter]:
        """Returns those that are meant, in their order. Lists must have been read for :attr:`keys`."""
        reason = self.reason.casefold()
        topic = None if self.topic is None else listed_key(self.topic)
        key = None if self.key is None else listed_key(self.key)
        return [
            each
            for each in letters
            if (topic is None or each.record.topic == topic)
            and (key is None or each.record.key == key)
            and each.record.key.startswith(self.key_prefix)
            and (not self.key_in_logs or names.of_listed(each.record.key) == self.key_in_logs)
            and (self.older_than is None or each.age >= self.older_than)
            and (self.younger_than is None or each.age <= self.younger_than)
            and (self.since is None or each.since >= self.since)
            and (self.until is None or each.since <= self.until)
            and reason in each.reason.casefold()
        ]

    def pinned(self, chosen: Sequence[DeadLetter]) -> Self:
        """Returns what means these letters later, too, and none that appear, or become old enough, later.

        Args:
            chosen: What it means now.
        """
        moments = [each.since for each in chosen]
        since, until = min(moments, default=self.since), max(moments, default=self.until)
        return replace(self, older_than=None, younger_than=None, since=since, until=until)

    def texts(self) -> dict[str, str]:
        """Returns what :meth:`of` reads, without what is not given."""
        found = {each: getattr(self, each) for each in self.names()}
        return {
            name: _text(value)
            for name, value in found.items()
            if value is not None and (value != "" or name in _MAY_BE_EMPTY)
        }

    def named(self, names: KeyNames) -> str:
        """Returns it for people, with keys as log lines name them; empty if all are meant."""
        texts = self.texts()
        if "key" in texts:
            texts["key"] = names.of(texts["key"])
        if self.key_prefix and names.hashed:
            texts["key_prefix"] = "(hidden)"
        for name, write in _WRITERS.items():
            if name in texts:
                texts[name] = write(getattr(self, name))
        return ", ".join(f"{_SAID[name]} {printable(text)}" for name, text in texts.items())


SECRET = ("key", "key_prefix", "key_in_logs")
"""Those that may be personal data."""
_MAY_BE_EMPTY = ("key", "topic")
"""Those of which an empty text means an empty one, and no text any."""
_READERS: Mapping[str, Callable[[str], object]] = {
    "older_than": parse_duration,
    "younger_than": parse_duration,
    "since": parse_time,
    "until": parse_time,
}
_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "older_than": duration,
    "younger_than": duration,
    "since": date_clock_and_zone,
    "until": date_clock_and_zone,
}
_SAID = {
    "key": "key",
    "key_prefix": "a key that begins with",
    "key_in_logs": "key",
    "topic": "topic",
    "reason": "a reason with",
    "older_than": "older than",
    "younger_than": "younger than",
    "since": "since",
    "until": "until",
}


def _read(name: str, text: str) -> Any:
    try:
        return _READERS.get(name, str)(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return f"{value:.6f}s" if isinstance(value, float) else str(value)
