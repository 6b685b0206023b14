"""What a replay is about to do, and has done, as an operator is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from outbox_api.base.bounds import NO_TOPIC, is_topic
from outbox_api.base.errors import ConfigError
from outbox_api.seams.kept import Chosen, Kept, KeptRecord
from outbox_api.seams.replay import ReplayState

from outbox_core.operations.kept import Choice
from outbox_core.settings.logs import KeyNames
from outbox_core.text.printable import cut_key, printable
from outbox_core.text.wording import about, counted, date_clock_and_zone

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CERTAIN = 10_000
"""Up to so many keys, two of which hardly share a hash."""


def is_name(name: str) -> bool:
    """Returns whether a replay can have a name."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an operator wants to be replayed.

    Attributes:
        name: The replay's name: letters, digits, and ``. _ -`` behind the first; 100 characters at most.
        choice: Which records.
        to: The topic that replaces theirs; empty for their own.

    Raises:
        ConfigError: It is no name, or no topic.
    """

    name: str
    choice: Choice
    to: str = ""

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ConfigError(
                f"'{self.name:.100}' is no name of a replay: write letters and digits, behind the first also"
                " '.', '_' and '-', 100 at most"
            )
        if self.to and not is_topic(self.to):
            raise ConfigError(f"'{self.to:.300}' is no topic: {NO_TOPIC}")

    @property
    def digest(self) -> str:
        """Identifies the choice."""
        choice, to = self.choice, self.to
        parts = [choice.key, sorted(choice.topics), choice.since, choice.until, sorted(choice.where), to]
        return sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def subject(self, names: KeyNames) -> str:
        """Returns it for people, with keys as log lines name them."""
        return f"{self.name}: {self.choice.named(names)}{f', to topic {self.to}' if self.to else ''}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a replay is about to do.

    Attributes:
        wanted: What was wanted.
        chosen: The records, for the database.
        state: How far it is.
        resumed: Whether it has begun before, and goes on.
        kept: How much was chosen; of one that goes on, how much is left.
        first: The first record to be stashed, without its value; ``None`` if there is none.
        last: The last one.
    """

    wanted: Wanted
    chosen: Chosen
    state: ReplayState
    resumed: bool
    kept: Kept
    first: KeptRecord | None
    last: KeptRecord | None

    def told(self, names: KeyNames) -> Iterator[str]:
        """Tells it to people, in lines, with the choice's keys as log lines name them."""
        kept, state = self.kept, self.state
        yield f"replay {printable(self.wanted.subject(names))}"
        if self.resumed:
            yield f"goes on: {state.done:,} of {state.chosen:,} records are stashed"
        if not kept.records:
            yield "nothing is kept that was chosen"
            return
        keys = f"{about(kept.keys, exact=kept.keys <= _CERTAIN)} key{'' if kept.keys == 1 else 's'}"
        yield f"{counted(kept.records, 'record')} to stash, of {keys}, {kept.bytes / 2**20:,.1f} MiB"
        for word, each in (("first", self.first), ("last", self.last)):
            if each:
                delivered = date_clock_and_zone(each.delivered_at)
                place = f"topic {printable(each.record.topic)}, key {cut_key(each.record.key)}"
                yield f"{word}: position {each.position}, delivered {delivered}, {place}"
        if kept.without_headers:
            yield f"{counted(kept.without_headers, 'record')} of these without headers, which were not kept"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A replay that has been given up."""

    name: str
    stashed: int  # how many of its records are stashed
    chosen: int  # how many there were
    unnoted: str = ""  # why the journal lacks the outcome of giving up; empty if it has it


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a replay goes on, and whom it tells.

    Attributes:
        wait: Waits for so many seconds; returns whether to stop.
        advance: Called with the number of records that were stashed.
        held_up: Called when it has waited long for the outbox to get shorter.
        rate: Records a second at most; ``None`` for no limit.
    """

    wait: Callable[[float], bool]
    advance: Callable[[int], object]
    held_up: Callable[[], object]
    rate: int | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay has done.

    Attributes:
        state: How far it was when this process last stashed records.
        outcome: What came of it, for people; empty if it was stopped before its end.
        unnoted: Why the journal lacks the outcome; empty if it has it.
    """

    state: ReplayState
    outcome: str = ""
    unnoted: str = ""
