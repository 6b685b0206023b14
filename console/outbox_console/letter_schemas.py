"""What the JSON side takes about dead letters and what waits, and what it returns of the latter."""

from __future__ import annotations

from typing import Annotated, Self

from outbox_api.base.errors import ConfigError
from outbox_api.seams.parking import LONGEST_KEY, DeadLetterStatus
from outbox_core.operations import LetterFilter, WaitingState
from pydantic import BaseModel, ConfigDict, Field, model_validator

from outbox_console.requests import MAX_BODY
from outbox_console.schemas import Answer, Body, Id

MOST = 1000
"""Dead letters that one request may name, or one answer lists."""


class NamedLetters(Body):
    """Dead letters of an outbox, by their ids."""

    ids: Annotated[
        list[Id],
        Field(min_length=1, max_length=MOST, description="The ids of the dead letters."),
    ]


_Text = Annotated[str, Field(max_length=MAX_BODY)]


class Where(BaseModel):
    """Conditions on dead letters, which all hold; without any, all of the state that the verb needs."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    key: Annotated[_Text | None, Field(description="The key, whole.")] = None
    key_prefix: Annotated[_Text, Field(description="What the key begins with.")] = ""
    key_in_logs: Annotated[_Text, Field(description="What log lines call the key.")] = ""
    topic: Annotated[_Text | None, Field(description="The topic.")] = None
    reason: Annotated[_Text, Field(description="What the reason contains, in capital or small letters.")] = ""
    older_than: Annotated[
        _Text | None, Field(description="Parked, or skipped, at least so long ago, such as 1h30m.")
    ] = None
    younger_than: Annotated[_Text | None, Field(description="At most so long ago.")] = None
    since: Annotated[_Text | None, Field(description="Then or later: ISO 8601.")] = None
    until: Annotated[
        _Text | None, Field(description="Then or earlier, as `until` of `GET /api/parked` has it.")
    ] = None

    @model_validator(mode="after")
    def _is_readable(self) -> Self:
        try:
            self.read()
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    def read(self) -> LetterFilter:
        """Returns it for :mod:`outbox_core.operations`."""
        return LetterFilter.of(self.model_dump(include=set(LetterFilter.names())))


class LettersQuery(Where):
    """Which dead letters are listed."""

    model_config = ConfigDict(strict=False)

    outbox: Annotated[
        str | None, Field(description="The outbox, by its label or table; optional where there is only one.")
    ] = None
    status: Annotated[DeadLetterStatus | None, Field(description="In which state; without it, in any.")] = (
        None
    )
    after: Annotated[int | None, Field(description="Those of a higher id.")] = None
    limit: Annotated[int, Field(ge=1, le=MOST, description="How many at most.")] = MOST


class Letters(Body):
    """Dead letters of an outbox: by their ids, or all that meet conditions."""

    ids: Annotated[
        list[Id],
        Field(default_factory=list, max_length=MOST, description="The ids of the dead letters."),
    ]
    where: Annotated[Where | None, Field(description="Instead: which.")] = None
    expected: Annotated[
        int,
        Field(
            ge=0,
            description="With `where`: how many they were, as `total` of `GET /api/parked` has it. "
            "If there are more by now, nothing is done.",
        ),
    ] = 0

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.ids) == (self.where is not None):
            raise ValueError("ids: give these or where, and one of them")
        if self.where is not None and "expected" not in self.model_fields_set:
            raise ValueError("expected: where needs it")
        return self


class Waiting(Answer):
    """Rows of a topic among those that wait."""

    topic: str
    first_id: Annotated[int, Field(description="The lowest id of these rows.")]
    rows: int
    share: Annotated[float, Field(description="Of the rows that were looked at, from 0 to 1.")]
    marked: Annotated[int, Field(description="How many carry the id of a lane, which has or had them.")]
    oldest_seconds: Annotated[float | None, Field(description="Age of the oldest; null if not known.")]
    state: Annotated[WaitingState, Field(description="Why they wait; the first that is true.")]


class WaitingTopic(Waiting):
    """A topic that waits."""

    parked_keys: int
    published_per_second: Annotated[
        float | None,
        Field(description="In the last minute, as heartbeats of lanes say; null if they do not."),
    ]
    failed_per_second: Annotated[float | None, Field(description="Likewise those whose delivery failed.")]


class WaitingOfKey(Waiting):
    """A key that waits, in one topic."""

    key: Annotated[str, Field(description=f"The key, or the first {LONGEST_KEY + 1:,} characters of it.")]
    key_in_logs: str


class WhatWaits(Answer):
    """What the first rows of an outbox are."""

    rows: Annotated[int, Field(description="How many were looked at.")]
    exact: Annotated[bool, Field(description="Whether these are all.")]
    topics: Annotated[list[WaitingTopic], Field(description="Those with the most rows first; 500 at most.")]
    keys: Annotated[list[WaitingOfKey], Field(description="Likewise.")]


class WaitingRow(Answer):
    """A row that waits."""

    id: int
    topic: str
    age_seconds: float | None
    size: Annotated[int, Field(description="Bytes or characters of key and value, about.")]
    marked: bool


class WaitingKey(Answer):
    """The rows of a key."""

    key: Annotated[str | None, Field(description="The key; null if the row is gone that was named.")]
    key_in_logs: str
    rows: int
    first: Annotated[list[WaitingRow], Field(description="The first 100, by id.")]
