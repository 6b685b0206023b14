"""What the JSON side takes and returns of kept records and their replays."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

from outbox_api.base.bounds import is_topic
from outbox_api.base.errors import ConfigError
from outbox_api.seams.parking import LONGEST_KEY
from outbox_core.operations import Choice, Verb, Wanted
from pydantic import Field, field_validator

from outbox_console.requests import RefusedError
from outbox_console.schemas import Answer, Body, Data, Done, Header

REVEAL_EFFECT = (
    "Shows the value and headers of a kept record, and changes nothing. The journal notes who has seen them."
)
_Position = Annotated[int, Field(description="Its place: the order of deliveries within a key.")]


def readable(choice: Choice) -> Choice:
    """Returns it as it is; raises :class:`RefusedError` if it cannot be read."""
    try:
        choice.chosen(datetime.now(UTC))
    except ConfigError as error:
        raise RefusedError(400, str(error)) from None
    return choice


def wanted(name: str, choice: Choice, to: str) -> Wanted:
    """Returns the replay that is wanted; raises :class:`RefusedError` for a wrong name or topic."""
    try:
        return Wanted(name=name, choice=choice, to=to)
    except ConfigError as error:
        raise RefusedError(400, str(error)) from None


class Position(Body):
    """One kept record."""

    position: Annotated[int, Field(ge=1, lt=2**63, description="Its position.")]


class Key(Body):
    """All that is left of a key."""

    key: Annotated[str, Field(min_length=1, description="The key, whole.")]
    tombstone: Annotated[
        str,
        Field(
            description="The topic for which a record of the key without a value is stashed; empty for none."
        ),
    ] = ""

    @field_validator("tombstone")
    @classmethod
    def _is_topic(cls, given: str) -> str:
        if given and not is_topic(given):
            raise ValueError("this is not the name of a topic")
        return given


class ReplayName(Body):
    """A replay that has begun."""

    name: Annotated[str, Field(description="Its name.")]


class Replaying(Body):
    """Which kept records are replayed, and how."""

    name: Annotated[
        str, Field(description="The replay's name, used once; the same request again goes on with it.")
    ]
    key: Annotated[str | None, Field(description="Those of this key, whole; null for any.")] = None
    topics: Annotated[
        list[str],
        Field(default_factory=list, description="Those of a topic that one matches, with * and ?."),
    ]
    since: Annotated[str, Field(description="Delivered then or later: ISO 8601, or a duration back.")] = ""
    until: Annotated[str, Field(description="Delivered before then; likewise.")] = ""
    where: Annotated[
        list[str], Field(default_factory=list, description="Conditions, such as `id >= 4711`; all hold.")
    ]
    to: Annotated[str, Field(description="The topic that replaces theirs; empty for their own.")] = ""
    rate: Annotated[int | None, Field(ge=1, description="Records a second at most.")] = None
    dry_run: Annotated[bool, Field(description="Whether only to tell what it would do.")] = False

    def wanted(self) -> Wanted:
        """Returns it for :mod:`outbox_core.operations`; raises :class:`RefusedError` if it cannot be read."""
        topics, where = tuple(self.topics), tuple(self.where)
        choice = readable(
            Choice(key=self.key, topics=topics, since=self.since, until=self.until, where=where)
        )
        return wanted(self.name, choice, self.to)


class KeptCount(Answer):
    """How much is kept."""

    records: int
    keys: Annotated[int, Field(description="Hashes of keys: of a few thousand keys, how many keys.")]
    bytes: Annotated[int, Field(description="Those of keys and values, about.")]
    without_value: Annotated[int, Field(description="Records whose value was left out.")]
    without_headers: Annotated[int, Field(description="Records whose headers were left out.")]
    first_position: Annotated[int, Field(validation_alias="first")]
    last_position: Annotated[int, Field(validation_alias="last")]
    since: Annotated[datetime | None, Field(description="When the first of them was delivered.")]
    until: Annotated[datetime | None, Field(description="When the last of them was delivered.")]


class KeptDay(KeptCount):
    """How much is kept of a day."""

    day: Annotated[date, Field(description="In UTC.")]


class KeptDays(Answer):
    """How much is kept."""

    records: int
    days: Annotated[list[KeptDay], Field(description="In their order; without those of which there is none.")]


class KeptRecord(Answer):
    """A kept record, without its value and headers."""

    position: _Position
    key: Annotated[str, Field(description=f"The key, or the first {LONGEST_KEY + 1:,} characters of it.")]
    key_in_logs: Annotated[
        str, Field(description="What log lines call the key; empty if only the whole key tells.")
    ]
    topic: str
    id: Annotated[int, Field(description="Its id in the outbox.")]
    delivered_at: Annotated[datetime, Field(description="When its row was purged.")]
    token: Annotated[int, Field(description="The fence token of the leader that purged it.")]
    has_value: Annotated[bool, Field(description="Whether its value was kept.")]
    has_headers: Annotated[bool, Field(description="Whether its headers were kept.")]
    superseded: Annotated[bool, Field(description="Whether it was not delivered, as a later one waited.")]


class KeptRecords(Answer):
    """Kept records."""

    records: Annotated[list[KeptRecord], Field(description="Ordered by position.")]
    next: Annotated[
        int | None, Field(description="The `after` of the next records; null where there are no more.")
    ]


class KeptContent(KeptRecord):
    """A kept record with all that it contains."""

    partition: int | None
    timestamp_ms: int | None
    value: Data
    headers: list[Header]


class ReplayBegun(Answer):
    """A replay that runs, or would run."""

    verb: Verb = Verb.REPLAY
    name: str
    dry_run: bool
    running: Annotated[bool, Field(description="Whether it runs now; `/api/replays` tells how far it is.")]
    effect: Annotated[str, Field(description="What it does to the order.")]
    resumes: Annotated[
        bool | None, Field(description="Whether it goes on with one that has begun; null if not known yet.")
    ]
    stashed: Annotated[int | None, Field(description="How many of its records were stashed before.")]
    chosen: Annotated[int | None, Field(description="How many were chosen when it began.")]
    kept: Annotated[KeptCount | None, Field(description="How much is to be stashed; null if not known yet.")]
    first: Annotated[KeptRecord | None, Field(description="The first record to be stashed.")]
    last: KeptRecord | None


class KeyErased(Done):
    """What was erased of a key."""

    verb: Verb = Verb.ERASE
    digest: Annotated[str, Field(description="Stands for the key, which the answer does not name.")]
    began: Annotated[datetime, Field(description="By the database's clock.")]
    ended: datetime
    kept: Annotated[int, Field(description="Kept records that were deleted.")]
    dead_letters: Annotated[int, Field(description="Skipped dead letters that were deleted.")]
    journal: Annotated[int, Field(description="Entries of the journal that named it.")]
    waiting: Annotated[
        int, Field(description="Rows that are still to be delivered: erase the key again afterwards.")
    ]
    tombstone: Annotated[str, Field(description="The topic of the tombstone; empty for none.")]


class ReplayGivenUp(Done):
    """A replay was given up."""

    verb: Verb = Verb.GIVE_UP
    name: str
    stashed: Annotated[int, Field(description="How many of its records are stashed.")]
    chosen: Annotated[int, Field(description="How many there were.")]


class ReplayState(Answer):
    """A replay, and how far it is."""

    name: str
    begun: datetime
    subject: Annotated[str, Field(description="What was chosen, for people.")]
    running: Annotated[bool, Field(description="Whether this process does it now; another one may.")]
    chosen: Annotated[int | None, Field(description="How many records; null once it has ended.")]
    stashed: Annotated[int | None, Field(description="How many are stashed; null once it has ended.")]
    ended: datetime | None
    outcome: Annotated[str, Field(description="What came of it, for people; empty until it has ended.")]
    error: Annotated[str, Field(description="Why this process does not go on with it; empty if it does.")]


class ReplayStates(Answer):
    """Replays of an outbox."""

    replays: Annotated[list[ReplayState], Field(description="Those under way first, then the newest first.")]
