"""What a database says of a column, as far as it tells whether rows can be put in order by it."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import Enum
from typing import Final, NamedTuple

FINE = 3
"""Digits of a second, from which moments tell most rows apart."""

_NUMBER = re.compile(
    r"(big|medium|small|tiny)?(int|integer|serial)[248]?\b|number|numeric|decimal|float|double|real"
)
_TIME = re.compile(r"(small)?date|time|year")
_UUID = re.compile(r"uuid|uniqueidentifier|(binary|raw)\(16\)")
_TEXT = re.compile(r"n?(var)?char|character|varchar2|nvarchar2|(long|medium|tiny)?text|n?clob|citext|enum")
_DIGITS = re.compile(r"\((\d+)\)")
_ROOM = re.compile(r"[a-z ]*char[a-z2 ]*\((\d+)")
_NO_DIGITS = re.compile(r"smalldatetime|date$|year|time\b")
_ZONED = re.compile(r"with (local )?time zone|timestamptz|datetimeoffset")
_WIDTHS: Final = (
    (re.compile(r"(big(int|serial)|int8)"), 64),
    (re.compile(r"(smallint|int2|smallserial)"), 16),
    (re.compile(r"mediumint"), 24),
    (re.compile(r"tinyint"), 8),
    (re.compile(r"(int|integer|int4|serial)\b"), 32),
)
_START_OF_TRANSACTION = re.compile(
    r"now\(|transaction_timestamp|current_timestamp|localtimestamp", re.IGNORECASE
)


class Nature(Enum):
    """What the values of a column are, where their order is asked for."""

    NUMBER = "numbers"
    MOMENT = "moments"
    COARSE = "moments of whole seconds, or coarser ones"
    UUID = "UUIDs"
    TEXT = "texts"
    OTHER = "neither numbers nor moments"


class ColumnFacts(NamedTuple):
    """A column of a table.

    Attributes:
        type: Its type as SQL writes it, in lower case.
        digits: Digits of a second that a type of time has which names none.
        default: Its default as SQL writes it; empty for none.
        step: By how much the numbers differ that the database gives out for it; 0 if it gives out none, or
            does not say; below 0 if they do not always rise.
        told: Whether the database would say.
        required: Whether it refuses nulls.
        instant: Whether its moments know their zone, though its type does not say so.
        base: The name of the type that a domain is made of, where the database has domains.
    """

    type: str
    digits: int = 6
    default: str = ""
    step: int = 0
    told: bool = True
    required: bool = False
    instant: bool = False
    base: str = ""

    @property
    def nature(self) -> Nature:
        """What its values are."""
        if "[" in self.type:
            return Nature.OTHER
        if _UUID.match(self.type):
            return Nature.UUID
        if _TIME.match(self.type):
            named = _DIGITS.search(self.type)
            digits = int(named[1]) if named else self.digits
            return Nature.COARSE if digits < FINE or _NO_DIGITS.match(self.type) else Nature.MOMENT
        for pattern, nature in ((_NUMBER, Nature.NUMBER), (_TEXT, Nature.TEXT)):
            if pattern.match(self.type):
                return nature
        return Nature.OTHER

    def never(self, value: str | bool | None) -> bool:
        """Whether it never equals a value, as far as its type tells; ``None`` is null."""
        if value is None:
            return self.required
        if isinstance(value, bool):  # to some servers any text is false
            return self.nature not in (Nature.NUMBER, Nature.OTHER) or self.type == "json"
        if self.nature is Nature.NUMBER:
            return not _is_number(value)
        room = _ROOM.match(self.type)
        listed = not self.type.startswith("enum(") or f"'{value.lower()}'" in self.type
        return self.type == "json" or not listed or bool(room and len(value) > int(room[1]))

    @property
    def is_local(self) -> bool:
        """Whether its moments have no zone, so that an hour may come twice."""
        return not (self.instant or _ZONED.search(self.type))

    @property
    def greatest(self) -> int | None:
        """The greatest number that it can hold, where it is a whole one."""
        for pattern, bits in _WIDTHS:
            if pattern.match(self.type):
                return int(2 ** (bits if "unsigned" in self.type else bits - 1)) - 1
        return None

    @property
    def is_of_transaction(self) -> bool:
        """Whether its default may be the beginning of the transaction, not the moment of writing."""
        return bool(_START_OF_TRANSACTION.search(self.default))


def _is_number(text: str) -> bool:
    try:
        return bool(Decimal(text).is_finite())
    except ArithmeticError:
        return False
