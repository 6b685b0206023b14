"""Pauses: what operators note, what lanes read of it and say about it, and what the audit makes of that.

*paused* is: a lane says that a pause is in effect only while nothing of it is in flight there. Once all lanes
of a leader have said so, no lane that holds its fence hands a record of it to the broker's client, and no
transaction commits one, until it is resumed or has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from outbox_api import WHOLE, Pause

from .base_statements import Common, FenceWrite
from .database import Database, Transaction
from .scheduler import Host
from .trail import Entry, Session, Violation

if TYPE_CHECKING:
    from .world import World

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
PAUSES_PER_SECOND = 2.0
ENDLESS = 1000.0
CALM = 100.0
"""Pauses that last until then are resumed when faults cease."""
LOOK_SECONDS = 0.3
"""How often lanes look; less than the real time, so that much happens to a pause."""


@dataclass(slots=True)
class Noted:
    """A pause as it is noted.

    Attributes:
        since: When it began, by the database's clock.
        until: When it ends by itself; infinity for never.
        in_effect: Whether all lanes of a leader have ever said that it is in effect.
    """

    since: float
    until: float
    in_effect: bool = False


def pauses_at(database: Database) -> dict[str, Noted]:
    """Returns the pauses that are on."""
    now = database.scheduler.now
    return {topic: each for topic, each in database.pauses.items() if each.until > now}


def moment(seconds: float) -> datetime:
    """Returns a time of the database's clock."""
    return BEGINNING + timedelta(seconds=seconds)


class ChangePause(Transaction):
    """An operator's pause or resume of one topic, or of all."""

    def __init__(self, database: Database, topic: str, seconds: float | None) -> None:
        super().__init__(database)
        self.topic = topic
        self.seconds = seconds

    def run(self) -> None:
        self.database.alone.acquire(self, True, lambda: self.pause_then(self.finish))

    def apply(self) -> None:
        database, now = self.database, self.database.scheduler.now
        database.pauses = pauses_at(database)
        if self.seconds is None:
            database.pauses.pop(self.topic, None)
        elif (noted := database.pauses.get(self.topic)) is not None:
            noted.until = now + self.seconds
        else:
            database.pauses[self.topic] = Noted(now, now + self.seconds)
        database.logged([], durable=True)


class ReadPauses(Transaction):
    """Returns what is paused."""

    def run(self) -> None:
        self.pause_then(self._look)

    def _look(self) -> None:
        found = pauses_at(self.database)
        self.refuse([Pause(topic, "", "", moment(each.since)) for topic, each in sorted(found.items())])


class Heartbeat(FenceWrite):
    """Notes which pauses a lane says to be in effect."""

    verb = "heartbeat"

    def __init__(self, common: Common, metrics: Mapping[str, Any]) -> None:
        super().__init__(common)
        self.said: Mapping[str, str] = metrics.get("paused", {})

    def apply(self) -> None:
        database, session = self.database, self.session
        for topic, noted in pauses_at(database).items():
            if self.said.get(topic) == moment(noted.since).isoformat():
                self._check_flying(session, topic)
        row = database.fence[self.right.lane]
        row.said = self.said
        lanes = [each for lane, each in database.fence.items() if lane < row.lanes]
        for topic, noted in pauses_at(database).items():
            since = moment(noted.since).isoformat()
            if all(each.said.get(topic) == since for each in lanes) and not noted.in_effect:
                noted.in_effect = True
                database.audit.counts["pauses in effect"] += 1

    def _check_flying(self, session: Session, topic: str) -> None:
        audit = self.database.audit
        for numbers in session.trail.flying.values():
            for number in numbers:
                if number not in session.trail.acked and topic in {WHOLE, audit.entries[number].topic}:
                    text = f"{session.name} says that {topic!r} is paused, and {number} is in flight"
                    raise Violation("paused", text, audit.entries[number].key, session.lane)


class PauseAudit:
    """*paused*: whether a record may be handed over."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __call__(self, session: Session, entry: Entry) -> None:
        if session.superseded:
            return
        for topic, noted in pauses_at(self._database).items():
            if noted.in_effect and topic in {WHOLE, entry.topic}:
                text = f"{session.name} publishes {entry.serial} of topic {entry.topic!r}, which is paused"
                raise Violation("paused", text, entry.key, session.lane)


class PausingOperator:
    """Pauses and resumes at any moment; what does not end by itself is resumed in the calm."""

    def __init__(self, world: World, topics: tuple[str, ...]) -> None:
        self._world = world
        self._topics = topics
        self._chance = Random(f"pauses {world.seed}")
        self._host = Host("operator of pauses", world.scheduler)
        if topics:
            self._later(self._act)

    def _later(self, then: Callable[[], None]) -> None:
        self._world.scheduler.after(self._chance.expovariate(PAUSES_PER_SECOND), then)

    def _act(self) -> None:
        world = self._world
        if not world.operator.busy:
            return
        topic = self._chance.choice(self._topics)
        resumes = topic in world.database.pauses and self._chance.random() < 0.7
        seconds = None if resumes else self._chance.choice((0.5, 2.0, ENDLESS))
        world.faults["resumed topics" if resumes else "paused topics"] += 1
        self._ask(topic, seconds)
        self._later(self._act)

    def _ask(self, topic: str, seconds: float | None) -> None:
        world = self._world
        world.tell(None, None, "an operator %s %r for %s", "pauses" if seconds else "resumes", topic, seconds)
        if not world.database.down:
            ChangePause(world.database, topic, seconds).start()

    def end(self) -> None:
        """Resumes what does not end soon."""
        for topic, noted in pauses_at(self._world.database).items():
            if noted.until > CALM:
                self._ask(topic, None)
