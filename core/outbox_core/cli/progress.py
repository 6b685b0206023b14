"""Shows the progress of a long command: a bar on a terminal, otherwise a line every few seconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from outbox_core.cli.terminal import messages

_LINE_SECONDS = 5.0


class _Lines:
    """Prints the number of records every few seconds."""

    def __init__(self, done: str, *, quiet: bool) -> None:
        self._done_text = done
        self._quiet = quiet
        self._done = 0
        self._next = time.monotonic() + _LINE_SECONDS

    def advance(self, records: int) -> None:
        self._done += records
        if not self._quiet and time.monotonic() >= self._next:
            self._next += _LINE_SECONDS
            messages().print(f"{self._done:,} records {self._done_text}")


class _Bar:
    def __init__(self, progress: Progress, doing: str, records: int) -> None:
        self._progress = progress
        self._task = progress.add_task(doing, total=records or None)

    def advance(self, records: int) -> None:
        self._progress.advance(self._task, records)


@contextmanager
def progress(doing: str, done: str, records: int = 0, *, quiet: bool) -> Iterator[_Lines | _Bar]:
    """Yields a counter of records that shows the progress."""
    console = messages()
    if quiet or not console.is_terminal:
        yield _Lines(done, quiet=quiet)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, doing, records)
