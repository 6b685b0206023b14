"""What is written where: results to stdout, everything else to stderr, colour and motion only for people."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

_WIDE = 200
"""Columns where there is no terminal: a table in a file or a pipe is not cut at 80."""


def output() -> Console:
    """Returns the console for results (stdout)."""
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)


def messages() -> Console:
    """Returns the console for messages (stderr)."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else _WIDE, highlight=False)


def print_json(data: Any) -> None:
    """Writes data as one JSON document to stdout, indented for a terminal and on one line elsewhere."""
    indent = 2 if sys.stdout.isatty() else None
    sys.stdout.write(json.dumps(data, indent=indent, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_error(message: str) -> None:
    """Writes one error message to stderr; a longer one keeps its lines."""
    messages().print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def note(message: str) -> None:
    """Writes a remark to stderr."""
    messages().print(Text(message), soft_wrap=True)


def plain(text: str) -> str:
    """Returns text with what does not print escaped: strangers' data must not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
