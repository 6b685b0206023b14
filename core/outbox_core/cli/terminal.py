"""Writes results to stdout and everything else to stderr; colours and animation only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_DEFAULT_WIDTH = 200
"""Columns without a terminal, so that tables in files and pipes are not cut at 80."""


def escape_what_has_no_encoding() -> None:
    """Has stdout and stderr write escapes for what their encoding lacks, as ASCII does."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def output() -> Console:
    """Returns the console for results (stdout)."""
    from rich.console import Console  # noqa: PLC0415 - rich is imported when something is printed with it

    return Console(width=None if sys.stdout.isatty() else _DEFAULT_WIDTH, highlight=False)


def messages() -> Console:
    """Returns the console for messages (stderr)."""
    from rich.console import Console  # noqa: PLC0415 - see output()

    return Console(stderr=True, width=None if sys.stderr.isatty() else _DEFAULT_WIDTH, highlight=False)


def print_json(data: Any, *, in_one_line: bool = False) -> None:
    """Writes data as one JSON document to stdout, indented on a terminal unless it is to be one line."""
    indent = 2 if sys.stdout.isatty() and not in_one_line else None
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")  # else escapes must be those of JSON
    sys.stdout.write(json.dumps(data, indent=indent, ensure_ascii=not unicode) + "\n")
    sys.stdout.flush()


def print_error(message: str) -> None:
    """Writes an error message to stderr; keeps its line breaks."""
    from rich.text import Text  # noqa: PLC0415 - see output()

    messages().print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def print_message(message: str) -> None:
    """Writes a message to stderr."""
    from rich.text import Text  # noqa: PLC0415 - see output()

    messages().print(Text(message), soft_wrap=True)


def terminated(statement: str) -> str:
    """Returns an SQL statement with one semicolon at its end."""
    return statement.rstrip().rstrip(";") + ";"


def script(statements: Iterable[str]) -> str:
    """Returns SQL statements as a script that a database's own client can run."""
    return "\n\n".join(terminated(statement) for statement in statements)


def printable(text: str) -> str:
    """Escapes characters that do not print, so that data from the database cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
