"""What is left out of marks and selections because it fails: keys of exactly-once lanes, and whole topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outbox_api import Failure, MarkedRecord

FAILING_KEYS = 100
"""A topic of which so many keys failed, and no record was delivered meanwhile, is held as a whole."""
COUNTED_TOPICS = 1000
"""Of how many topics failing keys are counted, and how many are held, at most."""
MAX_EXCLUDED_KEYS = 1000
"""The largest number of keys that one mark or selection excludes."""
MAX_EXCLUDED_BYTES = 1 << 20
"""How many characters these keys have together, as each mark and selection names them."""
TRIED = 10
"""How many held topics one look takes in to try them again: others share its transaction."""
TRIED_KEYS = 100
"""The same for held keys: those that fail again leave the transaction together."""
FORGET_SECONDS = 60.0
"""A topic that has not failed for so long after its pause is held no longer: its rows are gone or changed."""


@dataclass(slots=True)
class _Held:
    tries: int
    until: float
    forget_at: float


class Held:
    """Names that looks leave out until they are tried again, after pauses that grow with the tries."""

    def __init__(self, most: int, pause: Callable[[int], float]) -> None:
        self._most = most
        self._pause = pause
        self._names: dict[str, _Held] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are held."""
        return tuple(self._names)

    def add(self, now: float, name: str, tries: int = 1) -> bool:
        """Holds a name that has failed so often, or leaves it held; returns whether there was room for it."""
        held = self._names.get(name)
        if held is not None:
            held.forget_at = now + self._pause(held.tries) + FORGET_SECONDS
            return True
        if len(self._names) >= self._most or self._size + len(name) > MAX_EXCLUDED_BYTES:
            return False
        self._size += len(name)
        until = now + self._pause(tries)
        self._names[name] = _Held(tries, until, until + FORGET_SECONDS)
        return True

    def discard(self, name: str) -> None:
        """Holds a name no longer; one that is not held is no error."""
        if self._names.pop(name, None) is not None:
            self._size -= len(name)

    def release(self, now: float, most: int) -> list[tuple[str, _Held]]:
        """Holds no longer some of those whose pause is over, and returns them."""
        due = [(name, each) for name, each in self._names.items() if each.until <= now][:most]
        for name, _ in due:
            self.discard(name)
        return due

    def next_look(self, now: float) -> tuple[str, ...]:
        """Returns the names that the next look leaves out: all but a few whose pause is over.

        These are held again after that look, for longer, and come last next time; but for those that have
        not failed for long.
        """
        tried = self.release(now, TRIED)
        left_out = self.names
        for name, each in tried:
            if now < each.forget_at and self.add(now, name, each.tries + 1):
                self._names[name].forget_at = each.forget_at
        return left_out


class HeldTopics:
    """The topics that fail as a whole: missing, not permitted, or without the right to write.

    A topic is held when ``FAILING_KEYS`` of its keys failed and no record of it was delivered meanwhile. The
    next delivery ends that, or a minute without a failure. It takes few rows of such a topic to know,
    however many wait.
    """

    def __init__(self, pause: Callable[[int], float]) -> None:
        self.held = Held(COUNTED_TOPICS, pause)  # the held topics
        self._news: list[str] = []
        self._failing: dict[str, set[int]] = {}
        """Topic → hashes of the keys of it that failed: a key may be long, and there may be many."""

    def failed(self, now: float, failures: Iterable[Failure]) -> None:
        """Counts failed keys by their topics."""
        for failure in failures:
            record = failure.record
            if record.topic in self.held:
                self.held.add(now, record.topic)
                continue
            if record.topic not in self._failing and len(self._failing) >= COUNTED_TOPICS:
                del self._failing[next(iter(self._failing))]
            keys = self._failing.setdefault(record.topic, set())
            keys.add(hash(record.key))
            if len(keys) >= FAILING_KEYS and self.held.add(now, record.topic):
                del self._failing[record.topic]
                self._news.append(record.topic)

    def take_news(self) -> list[str]:
        """Returns the topics that are held since the last call."""
        news, self._news = self._news, []
        return news

    def delivered(self, records: Iterable[MarkedRecord]) -> None:
        """Handles delivered records: their topics do not fail as a whole."""
        if not self._failing and not self.held:
            return
        for topic in {record.topic for record in records}:
            self._failing.pop(topic, None)
            self.held.discard(topic)
