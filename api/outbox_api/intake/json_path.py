"""Where a text comes from in a row: a column, a member of the JSON in one, or the first of several."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

ARROW: Final = "->"
OR: Final = "|"

_BLANKS = re.compile(r"[ \t\n\r]*")
_CLOSING = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder()


class Member(NamedTuple):
    """A column, or a member of the JSON that it holds.

    Attributes:
        column: The column.
        path: The names of the members that lead there; none for the column itself.
    """

    column: str
    path: tuple[str, ...] = ()


@cache
def members_of(reference: str) -> tuple[Member, ...]:
    """Reads ``column``, ``column->member.of_member``, or several with ``|`` between.

    Raises:
        ValueError: A column or a member has no name.
    """
    found = []
    for each in reference.split(OR):
        column, arrow, path = (part.strip() for part in each.partition(ARROW))
        members = tuple(path.split(".")) if arrow else ()
        if not column or not all(members):
            raise ValueError(f"'{each.strip()}' is no column, and no column{ARROW}member.of_member")
        found.append(Member(column, members))
    return tuple(found)


def columns(*references: str) -> list[str]:
    """Returns the columns that references name; an empty reference names none."""
    return [member.column for reference in references if reference for member in members_of(reference)]


def reach(document: str, path: tuple[str, ...], *, written: bool = False) -> str | None:
    """Returns the text of a member of a JSON document, ``None`` where it is null or is not there.

    Anything comes as it is written there, so no number is rounded; but a text as its characters, unless
    ``written`` asks for JSON.

    Raises:
        ValueError: The document is not JSON.
    """
    try:
        start: int | None = _behind_blanks(document, 0)
        for name in path:
            if (start := _member(document, start or 0, name)) is None:
                return None
        value, end = _DECODER.raw_decode(document, start or 0)
    except (IndexError, RecursionError) as error:
        raise ValueError(f"it ends too early, or is too deep: {type(error).__name__}") from error
    if value is None:
        return None
    return value if isinstance(value, str) and not written else document[start:end]


def texts(document: str) -> Iterator[tuple[str, str | None]]:
    """Returns the names and texts of an object's members, or of a list's by their numbers; as :func:`reach`.

    Raises:
        ValueError: The document is not JSON.
    """
    try:
        for name, start, end in _members(document, _behind_blanks(document, 0)):
            value = _DECODER.raw_decode(document, start)[0]
            yield name, value if isinstance(value, str | None) else document[start:end]
    except (IndexError, RecursionError) as error:
        raise ValueError(f"it ends too early, or is too deep: {type(error).__name__}") from error


def _member(document: str, start: int, name: str) -> int | None:
    """Returns where a member of an object, or by its number of a list, begins; the last of its name."""
    if document[start] not in _CLOSING:
        return None
    return max((begins for each, begins, _ in _members(document, start) if each == name), default=None)


def _members(document: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Returns the names of members, or their numbers in a list, and where each begins and ends."""
    opening, at, number = document[start], start, 0
    closing = _CLOSING[opening]
    while document[at] != closing:
        at = _behind_blanks(document, at + 1)
        if not number and document[at] == closing:
            break
        member: Any = str(number)
        if opening == "{":
            member, at = _DECODER.raw_decode(document, _expected(document, at, '"') - 1)
            at = _behind_blanks(document, _expected(document, _behind_blanks(document, at), ":"))
        begins = at
        _, at = _DECODER.raw_decode(document, at)
        yield member, begins, at
        at = _behind_blanks(document, at)
        if document[at] not in f",{closing}":
            raise json.JSONDecodeError(f"Expecting ',' or {closing!r}", document, at)
        number += 1


def _expected(document: str, at: int, character: str) -> int:
    if document[at] != character:
        raise json.JSONDecodeError(f"Expecting {character!r}", document, at)
    return at + 1


def _behind_blanks(document: str, at: int) -> int:
    return _BLANKS.match(document, at).end()  # type: ignore[union-attr]  # it matches anywhere
