"""What all commands share: the configuration file, its settings, and signals."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Annotated, Self

import typer

from outbox_core.cli.logs import configure_logging
from outbox_core.cli.terminal import print_message
from outbox_core.config import load, locate
from outbox_core.settings import Settings
from outbox_core.settings.logs import LogLevel

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


NO_FILE = (
    "no outbox.yaml here and OUTBOX_FILE is not set: using the defaults, a PostgreSQL and a Kafka on this "
    "machine"
)

Read = Callable[[Path | None, Mapping[str, str]], Settings]
"""Reads the settings: from the file that is named, or from elsewhere; dotted keys are used instead."""


@dataclass
class Invocation:
    """One call of the program."""

    file: Path | None = None
    debug: bool = False
    read: Read = load

    def settings(self, file: Path | None, overrides: Mapping[str, str | None] | None = None) -> Settings:
        """Reads the configuration, and configures logging accordingly."""
        given = {key: value for key, value in (overrides or {}).items() if value is not None}
        named = file or self.file
        if self.read is load and locate(named) is None:
            print_message(NO_FILE)
        settings = self.read(named, given)
        configure_logging(settings.logging.level, form=settings.logging.format)
        return settings


def log_warnings_only(settings: Settings) -> Settings:
    """Raises the log level from info to warning, for a command that prints a result; returns the settings."""
    if settings.logging.level is LogLevel.INFO:
        configure_logging(LogLevel.WARN, form=settings.logging.format)
    return settings


class StopRequest:
    """Whether a signal has asked to stop.

    An event of ``threading`` would not do: its lock may be held by the code that the signal interrupts, which
    waits for the event, and then the signal's handler waits for ever. A simple queue takes items there.
    """

    def __init__(self) -> None:
        self._set = False
        self._wake: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Asks to stop; may be called in a signal's handler."""
        self._set = True
        self._wake.put(None)

    def is_set(self) -> bool:
        """Returns whether to stop."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until somebody asks to stop, at most ``timeout`` seconds; returns whether somebody did."""
        with suppress(Empty):
            self._wake.get(timeout=None if timeout is None else max(0.0, timeout))
            self._wake.put(None)  # for whoever waits beside, or later
        return self._set


class StopSignals:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a request to stop, and the second into a hard stop.

    A SIGHUP never counts as the second: it may accompany a SIGTERM, or arrive twice when a terminal closes.
    If it is ignored when the program starts (``nohup``), it stays ignored. Use this class as a context
    manager in the main thread.

    Args:
        grace: Seconds after the first signal until the process ends in any case, with exit code 0;
            ``None`` for no limit.
        outlives_hangup: Whether a SIGHUP stops nothing, and only :meth:`take_hangup` tells of it.
    """

    def __init__(self, grace: float | None = None, *, outlives_hangup: bool = False) -> None:
        self.requested = StopRequest()
        self._grace = grace
        self._outlives_hangup = outlives_hangup
        self._hung_up = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._on_signal)
        if self._grace is not None:
            # Ahead of the signal, as its handler must not start a thread.
            threading.Thread(target=self._limit, args=(self._grace,), name="grace", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            # After a request the handlers stay, so that a second signal works while the interpreter ends.
            if not self.requested.is_set():
                signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() itself returned

    def take_hangup(self) -> bool:
        """Returns whether a SIGHUP came since the last call that stops nothing."""
        came, self._hung_up = self._hung_up, False
        return came

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP and self._outlives_hangup:
            self._hung_up = True
            return
        if self.requested.is_set():
            if number != signal.SIGHUP:
                exit_now(128 + number)
            return
        self.requested.set()

    def _limit(self, grace: float) -> None:
        self.requested.wait()
        time.sleep(grace)
        exit_now(0)


def exit_now(code: int) -> None:
    """Ends the process at once, without waiting for threads and without cleaning up."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):
            continue  # closed, broken, or in use by the code that the signal interrupted
    os._exit(code)
