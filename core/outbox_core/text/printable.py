"""Texts that others wrote, as they may appear in log lines, on terminals and on pages: the one place.

A topic, a key, a name of a table, an error of a server: each may hold characters that end a line, drive a
terminal, or turn round or hide what stands beside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MAX_KEY_SHOWN = 250
"""Characters of a key that are shown to people."""


def printable(text: str, keep: str = "") -> str:
    """Escapes every character that does not print, as in a string of Python; a blank prints.

    Those are control characters, line breaks, format characters such as those that change the direction of
    writing, half surrogates, and what Unicode has not assigned (:meth:`str.isprintable`).
    """
    return _escaped(text, keep, lambda c: c.encode("unicode_escape").decode("ascii"))


def cut_key(key: str) -> str:
    """Returns the beginning of a key, as it prints."""
    return f"{printable(key[:MAX_KEY_SHOWN])}{'…' if len(key) > MAX_KEY_SHOWN else ''}"


def printable_json(data: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """Returns data as a JSON document, in which what does not print is an escape of JSON."""
    document = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    return _escaped(document, "\n", _json_escape)


def _json_escape(c: str) -> str:
    return r"\u007f" if c == "\x7f" else json.dumps(c)[1:-1]  # which json takes for printing


def _escaped(text: str, keep: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else escape(c) for c in text)
