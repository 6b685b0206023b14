"""Divides a terminal's window, whatever its size: the state above, graphs, and the last events below."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

_FEWEST = 5
"""So many events have precedence over the end of the state."""
_LEAST_STATE = 6
"""So many lines of the state have precedence over graphs and events."""

Lines = list[list[Segment]]


@dataclass(frozen=True)
class Screen:
    """What fits the window at the moment of drawing.

    Attributes:
        state: Above; its end is left out if there is no room.
        graphs: In the middle, if there is room for them; ``None`` for none.
        events: Time and text of each, in their order; of those that do not fit, the last are shown.
        brief: Replaces a state that does not fit a very small window; ``None`` for nothing.
        narrowest: A window of fewer columns is narrow: it has no graphs.
    """

    state: RenderableType
    graphs: RenderableType | None
    events: Sequence[tuple[str, str]]
    brief: RenderableType | None = None
    narrowest: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draws lines of the window's width."""
        free = options.update(height=None)
        state = self._state(console, free)
        graphs = self._graphs(console, free, min(len(state), _LEAST_STATE))
        events = [console.render_lines(_row(*each), free, pad=False) for each in self.events]
        few = sum(map(len, events[-_FEWEST:]))
        height = console.height - len(graphs)
        apart = len(state) + few + bool(graphs) + bool(few) <= height  # else no line is spent on being blank
        height -= apart * (bool(graphs) + bool(few))
        told = _last(events, max(height - len(state), min(few, height - _LEAST_STATE)))
        parts = [part for part in (_first(state, height - len(told), console), graphs, told) if part]
        for number, part in enumerate(parts):
            if number and apart:
                yield Segment.line()
            for line in part:
                yield from line
                yield Segment.line()

    def _state(self, console: Console, free: ConsoleOptions) -> Lines:
        lines = _without_blanks(console.render_lines(self.state, free, pad=False))
        least = 2 * _LEAST_STATE if console.width < self.narrowest else _LEAST_STATE  # its lines are folded
        if self.brief is None or console.height >= min(len(lines), least):
            return lines
        return _without_blanks(console.render_lines(self.brief, free, pad=False))

    def _graphs(self, console: Console, free: ConsoleOptions, others: int) -> Lines:
        if self.graphs is None or console.width < self.narrowest:
            return []
        lines = console.render_lines(self.graphs, free, pad=False)
        return lines if others + len(lines) <= console.height else []


def _row(time: str, text: str) -> Table:
    row = Table.grid(padding=(0, 2))
    row.add_row(Text(time, "dim"), Text(text))
    return row


def _without_blanks(lines: Lines) -> Lines:
    """Leaves out blank lines at the end."""
    while lines and not "".join(segment.text for segment in lines[-1]).strip():
        lines = lines[:-1]
    return lines


def _last(events: Sequence[Lines], room: int) -> Lines:
    told: Lines = []
    for lines in reversed(events):
        if len(told) + len(lines) > room:
            break
        told = lines + told
    return told


def _first(lines: Lines, room: int, console: Console) -> Lines:
    if len(lines) <= room:
        return lines
    kept = max(0, room - 1)
    more = Text(f"({len(lines) - kept} more lines)", "dim")
    return lines[:kept] + console.render_lines(more, pad=False)
