"""What the JSON side takes and returns; the description at ``/openapi.json`` is made of these."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from outbox_api.seams.parking import LONGEST_KEY, DeadLetterStatus
from outbox_core.operations import LONGEST_REASON, Verb
from outbox_core.status.minutes import Span
from outbox_core.text.duration import LONGEST
from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Outbox = Annotated[
    str | None,
    Field(description="The outbox, by its label or table; may be left out where there is only one."),
]
_Reason = Annotated[str, Field(max_length=LONGEST_REASON, description="Why; the journal notes it.")]


class Body(BaseModel):
    """What every verb takes."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    outbox: _Outbox = None
    reason: _Reason = ""


class Leader(Body):
    """The leader of an outbox."""

    fence_token: Annotated[
        Id | None,
        Field(
            description="The leader's token, as `/status` has it; nothing is done if another process leads "
            "by now. Without it, whoever leads is fenced."
        ),
    ] = None


class OtherCluster(Body):
    """Another cluster, whose records are in this outbox too."""

    cluster: Annotated[int, Field(description="Its number.")]
    fence_token: Annotated[
        Id,
        Field(
            description="The leader's token, as `/status` has it; 0 before the first leader. Nothing is done "
            "if it was raised since, as each beginning and end of a takeover does: so a copy of the request "
            "that arrives late does nothing."
        ),
    ]


class Topic(Body):
    """A topic, or the whole outbox."""

    topic: Annotated[
        str, Field(description="The topic, as the outbox names it; empty for the whole outbox.")
    ] = ""


class TopicToPause(Topic):
    """What is to be paused, and for how long."""

    seconds: Annotated[
        float | None,
        Field(ge=1, le=LONGEST, description="After how many seconds it ends by itself; null for never."),
    ] = None


class Answer(BaseModel):
    """What every answer has in common: nothing but how it is made."""

    model_config = ConfigDict(from_attributes=True)


class Refusal(Answer):
    """Why a request was not answered as asked."""

    error: Annotated[str, Field(description="Why, and what to do; free of secrets.")]


class Done(Answer):
    """What every verb returns."""

    verb: Verb
    unnoted: Annotated[
        str,
        Field(
            description="Why the journal lacks the outcome, although the action is done; empty if it has it."
        ),
    ] = ""


class LettersChanged(Done):
    """What was done to dead letters."""

    changed: Annotated[list[Id], Field(description="The ids of those that were changed, ascending.")]
    gone: Annotated[
        list[Id],
        Field(description="The ids of those that did not exist any more, or not in the required state."),
    ]
    fewer: Annotated[
        int, Field(description="How many fewer than `expected` there were that `where` means.")
    ] = 0


class FenceRaised(Done):
    """The fence was raised."""

    verb: Verb = Verb.RAISE_FENCE
    token: Annotated[int, Field(description="The token now.")]
    lanes: Annotated[int, Field(description="The number of lanes for which it holds.")]
    holder: Annotated[str, Field(description="Who holds the fence until a leader raises it again.")]
    fenced: Annotated[str, Field(description="Who held it before, under which token; empty for nobody.")]


class TakeoverDone(Done):
    """A deliberate takeover was begun or ended."""

    cluster: int
    changed: Annotated[bool, Field(description="Whether that is news.")]
    token: Annotated[
        int | None, Field(description="The token that was raised for it; null if nobody has ever led.")
    ]


class Paused(Answer):
    """A pause, as it is or was."""

    operator: str
    reason: str
    since: Annotated[datetime, Field(description="Since when, by the database's clock.")]
    until: Annotated[datetime | None, Field(description="When it ends by itself; null for never.")]
    lasted: Annotated[float, Field(description="For how many seconds it has lasted.")]


class PauseDone(Done):
    """Something was paused or resumed; `/status` says under `pauses` whether a pause is in effect."""

    topic: str
    pause: Annotated[
        Paused | None,
        Field(description="The pause that is on now, or that has ended; null if there was none."),
    ]
    query: Annotated[
        bool, Field(description="Whether a query of Spark reads the outbox, which ignores pauses.")
    ]


class Letter(Answer):
    """A dead letter, without what its record contains."""

    id: int
    status: DeadLetterStatus
    topic: str
    key: Annotated[str, Field(description=f"The key, or the first {LONGEST_KEY + 1:,} characters of it.")]
    key_in_logs: Annotated[
        str,
        Field(description="What log lines call the key; empty if only the whole key tells."),
    ]
    reason: Annotated[str, Field(description="The last error.")]
    attempts: int
    since: Annotated[datetime, Field(description="When it was parked, or skipped.")]
    age_seconds: float


class ParkedLetters(Answer):
    """Dead letters of an outbox."""

    total: Annotated[int, Field(description="How many there are; there may be more than are listed.")]
    until: Annotated[
        datetime | None,
        Field(description="When the last of all these was parked, or skipped; null if there is none."),
    ]
    letters: Annotated[list[Letter], Field(description="Ordered by id.")]
    next: Annotated[
        int | None, Field(description="`after` for those that follow; null if these are the last.")
    ]


class Data(Answer):
    """A value: text, or bytes in base64, or neither, for null."""

    text: str | None = None
    base64: str | None = None


class Header(Data):
    """A header of a record."""

    name: str


def data_of(value: str | bytes | None) -> dict[str, str]:
    """Returns the fields of a value."""
    if value is None:
        return {}
    return {"text": value} if isinstance(value, str) else {"base64": b64encode(value).decode()}


class Content(Answer):
    """What the record of a dead letter contains."""

    id: int
    key: str
    value: Data
    headers: list[Header]


class Revealed(Done):
    """Values and headers of dead letters."""

    verb: Verb = Verb.REVEAL
    letters: Annotated[list[Content], Field(description="Ordered by id.")]
    gone: Annotated[list[Id], Field(description="The ids of those that did not exist any more.")]


class JournalEntry(Answer):
    """What an operator has done, or was about to do."""

    id: UUID
    at: Annotated[datetime, Field(description="When it was begun.")]
    operator: str
    via: Annotated[str, Field(description="By which way: cli or http.")]
    verb: str
    subject: Annotated[str, Field(description="To what, for people; empty for the whole outbox.")]
    reason: str
    outcome: Annotated[
        str | None,
        Field(
            description="What came of it, for people; null if that was never noted: it may be done or not."
        ),
    ]


class Entries(Answer):
    """The last entries of the journal of an outbox."""

    entries: Annotated[list[JournalEntry], Field(description="The newest first.")]


class HistoryPoint(Answer):
    """The figures of an outbox at one moment, as its history has them; null where they are not known."""

    at: datetime
    records: Annotated[int | None, Field(description="The backlog.")]
    oldest_seconds: Annotated[
        float | None, Field(validation_alias="oldest", description="Age of the oldest record.")
    ]
    records_per_second: Annotated[
        float | None, Field(validation_alias="rate", description="Records harvested in each second.")
    ]
    p50_seconds: Annotated[
        float | None,
        Field(
            validation_alias="p50",
            description="Seconds from creation to the broker's acknowledgement within which half of the "
            "records of a minute were; null if there was none.",
        ),
    ]
    p99_seconds: Annotated[
        float | None, Field(validation_alias="p99", description="The same of 99 of 100 records.")
    ]
    failed: Annotated[int | None, Field(description="Records that failed in a minute.")]


class HistoryEventAnswer(Answer):
    """Something that happened to an outbox."""

    at: Annotated[datetime, Field(description="When it was seen.")]
    code: Annotated[str, Field(description="What, for programs, such as leader-changed.")]
    text: Annotated[str, Field(description="What, for people.")]


class HistoryTopic(Answer):
    """The records of a topic in a while, about: a sum over minutes."""

    topic: Annotated[str, Field(description="`_OTHER` for all that are not told apart.")]
    published: int
    failed: int


class History(Answer):
    """The history of an outbox, the same from every process, but for the last minute."""

    span: Span
    points: Annotated[
        list[HistoryPoint],
        Field(description="In the order of time: one of each minute, and of the last one about six."),
    ]
    events: Annotated[list[HistoryEventAnswer], Field(description="In the order of time.")]
    takeovers: Annotated[int, Field(description="How often a process began to lead.")]
    topics: Annotated[list[HistoryTopic], Field(description="Those with most records first.")]
    not_kept: Annotated[
        str,
        Field(
            description="Why the database keeps no history, so that this process tells what it has seen "
            "itself since it started, of the last hour at most; empty if it does."
        ),
    ]


def _refusals(said: Mapping[int | str, str]) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": Refusal, "description": what} for code, what in said.items()}


REFUSED = _refusals(
    {
        400: "The request is wrong; the error names the field.",
        401: "The client has not said who it is, or nobody knows its token.",
        403: "The client may not do this.",
        404: "This process harvests no outbox of that name.",
        502: "The database refuses.",
        503: "The database is away, or too many others wait for one.",
        504: "The database has not answered in time. What changes something may be done nevertheless.",
        "default": "Something else is wrong.",
    }
)
"""What every request may be answered instead, as FastAPI has it."""
REFUSED_TO_CHANGE = _refusals(
    {
        409: "What is to be changed is gone, or the outbox cannot do this.",
        413: "The body is too long.",
        415: "The body is not of the type application/json.",
    }
)
"""What a verb may be answered, too."""
