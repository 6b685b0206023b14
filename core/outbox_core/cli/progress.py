"""Says how far a long command is: a bar for people, a line now and then elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from outbox_core.cli.terminal import messages

_NOTE_SECONDS = 5.0


class _Notes:
    """Says every few seconds how far it is, where there is no terminal for a bar."""

    def __init__(self, done: str, *, quiet: bool) -> None:
        self._words = done
        self._quiet = quiet
        self._done = 0
        self._next = time.monotonic() + _NOTE_SECONDS

    def advance(self, records: int) -> None:
        """Counts records."""
        self._done += records
        if not self._quiet and time.monotonic() >= self._next:
            self._next += _NOTE_SECONDS
            messages().print(f"{self._done:,} records {self._words}")


class _Bar:
    """A progress bar."""

    def __init__(self, progress: Progress, doing: str, records: int) -> None:
        self._progress = progress
        self._task = progress.add_task(doing, total=records or None)

    def advance(self, records: int) -> None:
        """Counts records."""
        self._progress.advance(self._task, records)


@contextmanager
def progress(doing: str, done: str, records: int = 0, *, quiet: bool) -> Iterator[_Notes | _Bar]:
    """Lends what counts records and shows it.

    Args:
        doing: What happens to them, before a bar.
        done: What has happened to them, in a line.
        records: How many there will be; 0 if nobody knows.
        quiet: Whether to show nothing.
    """
    console = messages()
    if quiet or not console.is_terminal:
        yield _Notes(done, quiet=quiet)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, doing, records)
