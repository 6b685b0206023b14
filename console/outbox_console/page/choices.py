"""What the fields of forms and addresses choose."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_core.operations import Choice, Wanted

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
