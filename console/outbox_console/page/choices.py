"""What the fields of forms and addresses choose."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_api.base.errors import ConfigError
from outbox_api.seams.pausing import WHOLE
from outbox_core.operations import Choice, LetterFilter, Wanted
from outbox_core.operations.letter_filter import SECRET
from outbox_core.text.duration import parse_duration

from outbox_console.kept_schemas import readable, wanted
from outbox_console.requests import RefusedError
from outbox_console.view.verbs import MOST

_BEYOND = 1 << 63
FIELDS = ("key", "topics", "since", "until", "where", "name", "to", "rate")
"""Those of a search for kept records, and of a replay of what it finds."""


def integers(text: str) -> list[int]:
    """Returns the numbers in a text, between commas."""
    try:
        found = [int(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise RefusedError(400, "an id or a cluster is no number") from None
    if len(found) > MOST or any(abs(each) >= _BEYOND for each in found):
        raise RefusedError(400, f"{MOST:,} ids at most are taken at once, each of 64 bits")
    return found


def choice_of(form: Mapping[str, str]) -> Choice:
    """Returns the choice of a form: topics between blanks, conditions each in a line."""
    choice = Choice(
        key=form.get("key") or None,
        topics=tuple(form.get("topics", "").split()),
        since=form.get("since", "").strip(),
        until=form.get("until", "").strip(),
        where=tuple(filter(str.strip, form.get("where", "").splitlines())),
    )
    return readable(choice)


def wanted_of(form: Mapping[str, str]) -> tuple[Wanted, int | None]:
    """Returns the replay that a form asks for, and its records a second at most."""
    rate = next(iter(integers(form.get("rate", ""))), None)
    if rate is not None and rate < 1:
        raise RefusedError(400, "one record a second is the least rate")
    return wanted(form.get("name", "").strip(), choice_of(form), form.get("to", "").strip()), rate


LETTERS = ("outbox", "status", "sort", "page", "all", "by", "text")
"""Fields of a view of dead letters beside the conditions."""
EMPTY = "empty"
"""Chooses the empty key."""


def filter_of(form: Mapping[str, str]) -> LetterFilter:
    """Returns the dead letters that the fields of a form or an address choose; empty ones choose any.

    ``by`` is the condition on the key, and ``text`` what it is compared with.
    """
    texts: dict[str, str | None] = {
        name: value for name, value in form.items() if name not in LETTERS and value.strip()
    }
    by, text = form.get("by", ""), form.get("text", "")
    if by == EMPTY and not text:
        texts["key"] = ""
    elif text:
        if by not in SECRET:
            raise RefusedError(400, "choose how the key is to be compared")
        texts[by] = text
    try:
        return LetterFilter.of(texts)
    except ConfigError as error:
        raise RefusedError(400, str(error)) from None


def filter_of_address(form: Mapping[str, str]) -> LetterFilter:
    """Returns the same of an address, which must not have a key: proxies note addresses."""
    if form.get("text") or form.get("by") == EMPTY or set(SECRET) & form.keys():
        raise RefusedError(400, "a key has no place in an address, which proxies note: send a form")
    return filter_of(form)


def topic_of(form: Mapping[str, str]) -> str | None:
    """Returns the topic of a form or an address, or ``WHOLE`` for the outbox; ``None`` if it names neither.

    An empty field is not the outbox: nobody is to pause all for having typed nothing.
    """
    return WHOLE if form.get("whole") == "1" else form.get("topic") or None


def seconds_of(form: Mapping[str, str]) -> float | None:
    """Returns for how long a form asks for a pause; ``None`` for no end."""
    lasts = form.get("lasts", "")
    text = form.get("own", "").strip() if lasts == "own" else lasts
    if text == "resumed":
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise RefusedError(400, f"nothing was done: say for how long: {error}") from None
    if seconds < 1:
        raise RefusedError(400, "nothing was done: one second is the shortest pause")
    return seconds
