"""A dialect's insert, written in the parameter style of whoever executes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from string import Formatter
from typing import Protocol

Values = Mapping[str, object]
Rename = Callable[[str], str]
"""The name of a table as the application writes it → its name on a connection."""


class Style(Enum):
    """How a driver writes parameters: DB-API's names, and SQLAlchemy's ``text``."""

    PYFORMAT = "pyformat"
    FORMAT = "format"
    NAMED = "named"
    QMARK = "qmark"
    NUMERIC = "numeric"
    SQLALCHEMY = "sqlalchemy"

    @property
    def by_name(self) -> bool:
        """Whether parameters are handed over by name, not by position."""
        return self in (Style.PYFORMAT, Style.NAMED, Style.SQLALCHEMY)


_ESCAPES = {
    Style.PYFORMAT: ("%", "%%"),
    Style.FORMAT: ("%", "%%"),
    # A colon in a quoted name would otherwise start a parameter.
    Style.SQLALCHEMY: (":", "\\:"),
}


class Statement:
    """One SQL text in one style.

    Args:
        sql: A statement whose parameters are written ``{name}``, and braces twice, as in ``str.format``.
        style: The style of ``text``.

    Attributes:
        text: The statement in that style.
    """

    def __init__(self, sql: str, style: Style) -> None:
        names: list[str] = []
        parts: list[str] = []
        plain, escaped = _ESCAPES.get(style, ("", ""))
        for literal, name, _, _ in Formatter().parse(sql):
            parts.append(literal.replace(plain, escaped) if plain else literal)
            if name is not None:
                names.append(name)
                parts.append(self._placeholder(style, name, len(names)))
        self._names = tuple(names)
        self._by_name = style.by_name
        self.text = "".join(parts)

    def arguments(self, values: Mapping[str, object]) -> Mapping[str, object] | tuple[object, ...]:
        """Returns the parameters' values as the style wants them."""
        if self._by_name:
            return {name: values[name] for name in self._names}
        return tuple(values[name] for name in self._names)

    @staticmethod
    def _placeholder(style: Style, name: str, position: int) -> str:
        match style:
            case Style.PYFORMAT:
                return f"%({name})s"
            case Style.FORMAT:
                return "%s"
            case Style.NAMED | Style.SQLALCHEMY:
                return f":{name}"
            case Style.QMARK:
                return "?"
            case Style.NUMERIC:
                return f":{position}"


statement_of = lru_cache(maxsize=1000)(Statement)
"""Makes a statement, or returns the one that was made of the same SQL: of tenants' tables there are many."""


class StatementIn(Protocol):
    """Returns the statement in a style, for the table as it is called on a connection."""

    def __call__(self, style: Style, rename: Rename = str) -> Statement:
        """Returns it."""
        ...
