"""Writes results to stdout and everything else to stderr; colours and animation only on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from outbox_api.base.errors import OutboxError

from outbox_core.text.printable import printable, printable_json
from outbox_core.text.redaction import redact_addresses

if TYPE_CHECKING:
    from rich.console import Console

_NOWHERE = Path(os.devnull)
_DEFAULT_WIDTH = 200
"""Columns without a terminal, so that tables in files and pipes are not cut at 80."""


@contextmanager
def prepared_streams() -> Iterator[None]:
    """Makes stdout and stderr such that they can be written to, or that an error says why they cannot.

    They write escapes for what their encoding lacks, as ASCII does. What is closed (``>&-``) is written to
    nowhere. An error of stdout is an :class:`OutboxError`, except a broken pipe: nobody reads any more.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, _NOWHERE.open("w", encoding="utf-8"))
        if isinstance(stream := getattr(sys, name), TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with redirect_stdout(cast(IO[str], _Results(sys.stdout))):
        yield


class _Results:
    """What stdout is, until it cannot be written; from then on the rest goes nowhere.

    Python would try to write that rest again at its end, and fail.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._failing():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._failing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with _NOWHERE.open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if isinstance(error, BrokenPipeError):
                raise
            raise OutboxError(f"cannot write to stdout: {error.strerror}") from error


def output() -> Console:
    """Returns the console for results (stdout)."""
    from outbox_core.cli.console import PlainConsole  # noqa: PLC0415 - rich is imported when it prints something

    return PlainConsole(width=None if sys.stdout.isatty() else _DEFAULT_WIDTH)


def messages() -> Console:
    """Returns the console for messages (stderr)."""
    from outbox_core.cli.console import PlainConsole  # noqa: PLC0415 - see output()

    return PlainConsole(stderr=True, width=None if sys.stderr.isatty() else _DEFAULT_WIDTH)


Part = tuple[str, str]
"""A text, and its style."""


def print_lines(lines: Iterable[Iterable[Part]]) -> None:
    """Writes lines to stdout; without a terminal without rich, so that a probe need not import it."""
    if not sys.stdout.isatty():
        text = "".join(f"{printable(''.join(part for part, _ in line))}\n" for line in lines)
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from rich.text import Text  # noqa: PLC0415 - see output()

    for line in lines:
        output().print(Text.assemble(*line), soft_wrap=True)


def print_json(data: Any, *, in_one_line: bool = False) -> None:
    """Writes data as one JSON document to stdout, indented on a terminal unless it is to be one line.

    What does not print is escaped, as JSON does it.
    """
    indent = 2 if sys.stdout.isatty() and not in_one_line else None
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")  # else escapes must be those of JSON
    sys.stdout.write(printable_json(data, indent=indent, ascii_only=not unicode) + "\n")
    sys.stdout.flush()


def print_error(message: str, code: str) -> None:
    """Writes an error message to stderr, and how to learn more; lines behind its first are indented."""
    from rich.text import Text  # noqa: PLC0415 - see output()

    more = f"{redact_addresses(message)}\nsee: outbox explain {code}"
    messages().print(Text.assemble(("error: ", "bold red"), _one(more)), soft_wrap=True)


def print_message(message: str) -> None:
    """Writes a message to stderr; lines behind its first are indented."""
    messages().print(_one(redact_addresses(message)), soft_wrap=True)


def _one(message: str) -> str:
    """Returns a message of which no line can be taken for the beginning of another one."""
    return message.replace("\n", "\n    ")


def print_script(statements: str) -> None:
    """Writes SQL to stdout as it is; for a terminal, what does not print is escaped."""
    if sys.stdout.isatty():
        output().print(statements, soft_wrap=True)
    else:
        sys.stdout.write(statements + "\n")
        sys.stdout.flush()


def terminated(statement: str) -> str:
    """Returns an SQL statement with one semicolon at its end."""
    return statement.rstrip().rstrip(";") + ";"


def script(statements: Iterable[str]) -> str:
    """Returns SQL statements as a script that a database's own client can run."""
    return "\n\n".join(terminated(statement) for statement in statements)
