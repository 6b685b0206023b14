"""What every command shares: the file's name, the settings in it, and signals."""

import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Self

import typer

from outbox_core.cli.logs import configure_logging
from outbox_core.config import LogLevel, Settings, load

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        show_default=False,
        help="The configuration. Default: $OUTBOX_FILE, ./outbox.yaml, or a local Postgres and Kafka.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout, for programs.")]


@dataclass
class Invocation:
    """One call of the program.

    Attributes:
        file: The file named before the command.
        debug: Whether errors show where they come from.
    """

    file: Path | None = None
    debug: bool = False

    def settings(self, file: Path | None, overrides: Mapping[str, str | None] | None = None) -> Settings:
        """Reads the configuration and sets up logging as it says.

        Args:
            file: The file named after the command, which wins.
            overrides: Dotted key → value; those that are ``None`` were not given.
        """
        given = {key: value for key, value in (overrides or {}).items() if value is not None}
        settings = load(file or self.file, given)
        configure_logging(settings.logging.level)
        return settings


def quiet(settings: Settings) -> Settings:
    """Keeps the log of a command that answers a question to what is wrong; returns the settings."""
    if settings.logging.level is LogLevel.INFO:
        configure_logging(LogLevel.WARN)
    return settings


class StopSignals:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a request, and the second into a hard stop.

    A SIGHUP is never taken for the second: it comes beside a SIGTERM, or twice when a terminal goes. If it is
    ignored when the program starts (``nohup``), it stays so. Use it as a context manager in the main thread.

    Args:
        patience: Seconds after the first signal until the process ends in any case, with exit code 0;
            ``None`` to wait for ever.
    """

    def __init__(self, patience: float | None = None) -> None:
        self.requested = threading.Event()
        self._patience = patience
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # After a request the handlers stay: a second signal must work while the interpreter ends.
            if not self.requested.is_set():
                signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() itself returned

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.requested.is_set():
            if number != signal.SIGHUP:
                leave(128 + number)
            return
        self.requested.set()
        if self._patience is not None:
            last = threading.Timer(self._patience, leave, (0,))
            last.daemon = True
            last.start()


def leave(code: int) -> None:
    """Ends the process at once: no thread is waited for and nothing is cleaned up."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):
            continue  # closed, broken, or being written to by the code that the signal interrupted
    os._exit(code)
