"""Whether rows of another table can be put in order by a column, as far as its type and its values tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from outbox_api.base.finding import Level
from outbox_api.intake.column_text import text_of
from outbox_api.intake.intake import Intake
from outbox_api.portable.column_facts import ColumnFacts, Nature

_SORTED = frozenset({6, 7})
"""The versions of UUIDs that begin with their moment."""

_BYTES = 16

_NAME_ONE = (
    "name a column of numbers that the database gives out one by one, or else of moments, as intake.order"
)


class Order(NamedTuple):
    """The order that rows will be taken in, and whether it can be relied on."""

    level: Level
    words: str
    doubt: str = ""  # why it may not be that of writing
    cure: str = ""


def judge(intake: Intake, columns: Mapping[str, ColumnFacts], sample: Callable[[], Sequence[Any]]) -> Order:
    """Judges the column that an intake orders its rows by; ``sample`` returns some of its values."""
    name = intake.order or intake.id
    facts = columns[name] if columns[name].type else columns[name]._replace(type=_type_of(sample()))
    words = f"the order of '{name}' ({facts.type})"
    if not intake.order and facts.nature is not Nature.NUMBER:
        return Order(Level.ERROR, words, f"'{name}' does not tell the order of its rows", "set intake.order")
    match facts.nature:
        case Nature.NUMBER:
            return _numbers(facts, words)
        case Nature.MOMENT | Nature.COARSE:
            return _moments(intake, facts, columns[intake.id], words)
        case Nature.UUID | Nature.TEXT:
            return _texts(name, facts, sample(), words)
    return Order(Level.ERROR, words, f"'{name}' holds {facts.nature.value}", _NAME_ONE)


def _numbers(facts: ColumnFacts, words: str) -> Order:
    blocks = "an application that gives out the numbers of a block itself writes them out of order"
    if facts.step < 0:
        doubt = "its numbers do not always rise: the sequence counts down, or starts over (CYCLE)"
        return Order(Level.ERROR, words, doubt, f"ALTER SEQUENCE … NO CYCLE, or {_NAME_ONE}")
    if facts.step > 1:
        doubt = f"its numbers are given out in blocks of {facts.step}: {blocks}"
        return Order(Level.WARNING, words, doubt, f"let them be given out one by one, or {_NAME_ONE}")
    if facts.told and not facts.step:
        doubt = f"the database does not give it out; if it comes in blocks (Hibernate's pooled ids), {blocks}"
        return Order(
            Level.WARNING, words, doubt, f"see that numbers rise in the order of commits, or {_NAME_ONE}"
        )
    return Order(Level.OK, words)


def _moments(intake: Intake, facts: ColumnFacts, ids: ColumnFacts, words: str) -> Order:
    numbered = ids.nature is Nature.NUMBER
    cure = f"leave intake.order out, as '{intake.id}' is a number" if numbered else _NAME_ONE
    if facts.nature is Nature.COARSE:
        name = intake.order or intake.id
        doubt = f"'{name}' holds {facts.nature.value}; rows of one come in the order of '{intake.id}'"
        finer = f"{cure}, or give '{name}' microseconds"
        return Order(Level.WARNING if numbered else Level.ERROR, words, doubt, finer)
    if "on update" in facts.type:
        doubt = "a row that is updated comes behind those that were written meanwhile"
        return Order(Level.WARNING, words, doubt, f"see that no row is updated, or {cure}")
    if facts.is_local and intake.zone != "UTC":
        doubt = f"the hour in which the clocks of {intake.zone} go back comes twice"
        return Order(Level.WARNING, words, doubt, f"{cure}, or write moments in UTC")
    if facts.is_of_transaction:
        doubt = (
            "its default may be the moment at which a transaction begins: one that then waits for another "
            f"seems the earlier, and the rows of one come in the order of '{intake.id}'"
        )
        return Order(Level.WARNING, words, doubt, f"{cure}, or write the present moment (clock_timestamp())")
    if not numbered:
        doubt = f"rows of one moment come in the order of '{intake.id}' ({ids.type})"
        return Order(Level.WARNING, words, doubt, f"see that rows of a key have different moments, or {cure}")
    return Order(Level.OK, f"{words}, then of '{intake.id}'")


def _texts(name: str, facts: ColumnFacts, sample: Sequence[Any], words: str) -> Order:
    versions = {_version(value) for value in sample if value is not None}
    if any(version and version not in _SORTED for version in versions):
        return Order(Level.ERROR, words, f"'{name}' holds UUIDs whose order is not that of time", _NAME_ONE)
    if versions and versions <= _SORTED:
        doubt = "UUIDs of one millisecond have no order, unless who makes them sees to it"
        return Order(Level.WARNING, words, doubt, f"see that they rise, or {_NAME_ONE}")
    if facts.nature is Nature.UUID:
        doubt = f"'{name}' holds UUIDs; those of version 4 have no order"
        return Order(Level.WARNING if versions == set() else Level.ERROR, words, doubt, _NAME_ONE)
    doubt = "texts are compared by their letters: '10' comes before '9', and 'a' may come before 'B'"
    return Order(
        Level.WARNING, words, doubt, f"see that all have one length and one case (as ULIDs), or {_NAME_ONE}"
    )


def _type_of(values: Sequence[Any]) -> str:
    """Returns a type that values have, for a column that the catalogue does not show."""
    found = next((value for value in values if value is not None), 0)
    types = {
        bool: "boolean",
        int: "number",
        Decimal: "number",
        datetime: "timestamp",
        str: "text",
        UUID: "uuid",
    }
    return types.get(type(found), "other")


def _version(value: Any) -> int | None:
    """Returns the version of what is a UUID, or its text; other tools write 32 digits otherwise."""
    if isinstance(value, bytes) and len(value) == _BYTES and value[0] >> 4 == 1:
        return min(_SORTED)  # MySQL's UUID_TO_BIN has put the moment of a version 1 first
    text = (text_of(value) or "").lower()
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found.version or -1 if text in (str(found), found.hex) else None
