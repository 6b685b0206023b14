"""Shows a demonstration: a calm live panel on a terminal, plain lines elsewhere."""

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

from outbox_core.demo.scene import Outcome, Role, Scene

_LINE_SECONDS = 5.0
_PANEL_WIDTH = 92
_STYLES = {Role.LEADER: "bold green", Role.KILLED: "bold red", Role.STANDBY: "cyan"}


class Screen(Protocol):
    """Where a demonstration is shown; a context manager."""

    def say(self, text: str) -> None:
        """Shows a line that stays: something has happened."""
        ...

    def wait_for(self, text: str) -> None:
        """Shows what is being waited for, until anything else is shown."""
        ...

    def show(self, scene: Scene) -> None:
        """Shows the present moment in place of the last one."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_screen(console: Console) -> Screen:
    """Returns the screen that suits where the console writes to."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class LiveScreen:
    """A panel at the bottom of the terminal that is updated in place, below the lines that stay."""

    def __init__(self, console: Console, clock: Callable[[], float] = monotonic) -> None:
        self._start = clock()
        self._clock = clock
        self._live = Live(console=console, refresh_per_second=5, transient=True)

    def say(self, text: str) -> None:
        """Prints the line above the panel."""
        self._live.console.print(_line(self._clock() - self._start, text))

    def wait_for(self, text: str) -> None:
        """Shows a spinner."""
        self._live.update(Spinner("dots", Text(f" {text}", "dim")))

    def show(self, scene: Scene) -> None:
        """Updates the panel."""
        self._live.update(_panel(scene), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update("")
        self._live.stop()


class PlainScreen:
    """Lines of text, with the present moment every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = monotonic) -> None:
        self._console = console
        self._start = clock()
        self._clock = clock
        self._next = 0.0

    def say(self, text: str) -> None:
        """Prints the line."""
        self._console.print(_line(self._clock() - self._start, text), soft_wrap=True)

    def wait_for(self, text: str) -> None:
        """Prints what is waited for."""
        self.say(f"{text} …")

    def show(self, scene: Scene) -> None:
        """Prints the moment in one line, if the last one was some seconds ago."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + _LINE_SECONDS
        roles = ", ".join(f"{name} {role}" for name, role in scene.roles.items())
        self.say(
            f"{scene.committed:,} committed, {scene.delivered:,} delivered, {scene.backlog:,} waiting, "
            f"{scene.rate:,.0f}/s; {roles}, fence token {scene.token}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves what was printed."""


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Prints figures and verdict."""
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
    console.print(Text.assemble((f"{word}: ", style), outcome.verdict()), soft_wrap=True)


def _line(seconds: float, text: str) -> Text:
    return Text.assemble((f"{seconds:6.1f} s  ", "dim"), text)


def _panel(scene: Scene) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=12)
    grid.add_column(justify="right", no_wrap=True, min_width=9)
    grid.add_column(style="dim", no_wrap=True)
    stashed = f"in transactions; {scene.late:,} of them late; {scene.rolled_back:,} more rolled back"
    grid.add_row("committed", f"{scene.committed:,}", stashed)
    grid.add_row("delivered", f"{scene.delivered:,}", "to the consumer")
    grid.add_row("waiting", f"{scene.backlog:,}", "in the outbox")
    grid.add_row("rate", f"{scene.rate:,.0f}", "records/s")
    for name, role in scene.roles.items():
        token = f"fence token {scene.token}" if role is Role.LEADER else ""
        grid.add_row(name, Text(role, _STYLES[role]), token)
    return Panel(grid, box=box.ROUNDED, border_style="dim", width=_PANEL_WIDTH)
