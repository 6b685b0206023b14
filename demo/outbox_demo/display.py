"""Shows the progress of a demonstration: a live panel on a terminal, plain lines elsewhere."""

from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from outbox_demo.outcome import Outcome
from outbox_demo.snapshot import Role, Snapshot

_LINE_SECONDS = 5.0
_PANEL_WIDTH = 92
_STYLES = {Role.LEADER: "bold green", Role.KILLED: "bold red", Role.STANDBY: "cyan"}


class Display(Protocol):
    """Shows the progress of a demonstration; a context manager."""

    def log(self, text: str) -> None:
        """Prints a permanent line about an event."""
        ...

    def wait_for(self, text: str) -> None:
        """Shows what the demonstration waits for, until the next call."""
        ...

    def show(self, snapshot: Snapshot) -> None:
        """Replaces the snapshot that is shown."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_display(console: Console) -> Display:
    """Returns a live display for a terminal, a plain one for a file or a pipe."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class LiveDisplay:
    """A panel at the bottom of the terminal, updated in place, below the permanent lines."""

    def __init__(self, console: Console, clock: Callable[[], float] = monotonic) -> None:
        self._start = clock()
        self._clock = clock
        self._live = Live(console=console, refresh_per_second=5, transient=True)

    def log(self, text: str) -> None:
        """Prints the line above the panel."""
        self._live.console.print(_line(self._clock() - self._start, text))

    def wait_for(self, text: str) -> None:
        """Shows a spinner."""
        self._live.update(Spinner("dots", Text(f" {text}", "dim")))

    def show(self, snapshot: Snapshot) -> None:
        """Updates the panel."""
        self._live.update(_panel(snapshot), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update("")
        self._live.stop()


class PlainDisplay:
    """Lines of text, with a snapshot every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = monotonic) -> None:
        self._console = console
        self._start = clock()
        self._clock = clock
        self._next = 0.0

    def log(self, text: str) -> None:
        """Prints the line."""
        self._console.print(_line(self._clock() - self._start, text), soft_wrap=True)

    def wait_for(self, text: str) -> None:
        """Prints what the demonstration waits for."""
        self.log(f"{text} …")

    def show(self, snapshot: Snapshot) -> None:
        """Prints the snapshot in one line, at most every few seconds."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + _LINE_SECONDS
        roles = ", ".join(f"{name} {role}" for name, role in snapshot.roles.items())
        self.log(
            f"{snapshot.committed:,} committed, {snapshot.delivered:,} delivered, "
            f"{snapshot.backlog:,} waiting, {snapshot.rate:,.0f}/s; {roles}, fence token {snapshot.token}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does nothing: printed lines stay."""


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Prints the figures and the summary."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for row in outcome.figures():
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print()
    style, word = ("bold green", "GOOD") if outcome.good else ("bold red", "BAD")
    console.print(Text.assemble((f"{word}: ", style), outcome.summary()), soft_wrap=True)


def _line(seconds: float, text: str) -> Text:
    return Text.assemble((f"{seconds:6.1f} s  ", "dim"), text)


def _panel(snapshot: Snapshot) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=12)
    grid.add_column(justify="right", no_wrap=True, min_width=9)
    grid.add_column(style="dim", no_wrap=True)
    stashed = f"in transactions; {snapshot.late:,} of them late; {snapshot.rolled_back:,} more rolled back"
    grid.add_row("committed", f"{snapshot.committed:,}", stashed)
    grid.add_row("delivered", f"{snapshot.delivered:,}", "to the consumer")
    grid.add_row("waiting", f"{snapshot.backlog:,}", "in the outbox")
    grid.add_row("rate", f"{snapshot.rate:,.0f}", "records/s")
    for name, role in snapshot.roles.items():
        token = f"fence token {snapshot.token}" if role is Role.LEADER else ""
        grid.add_row(name, Text(role, _STYLES[role]), token)
    return Panel(grid, box=box.ROUNDED, border_style="dim", width=_PANEL_WIDTH)
