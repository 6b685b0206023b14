"""Tables of which a line can be chosen, and texts above them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from outbox_core.cli.console import PlainConsole

MOST_LINES = 500
"""Lines of a table: to make that many anew takes textual a fifth of a second."""

Line = tuple[str, Sequence[Text]]
"""The name of a line of a table, and its cells."""


class Plain:
    """What rich shows as on any console of ours, where no text is markup and none drives the terminal."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from PlainConsole(force_terminal=True).render(self._shown, options)


class Lines(DataTable[Text]):
    """A table with the keys of vi, too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "open"),
        Binding("j", "cursor_down", "Cursor down", show=False),
        Binding("k", "cursor_up", "Cursor up", show=False),
    ]

    def __init__(self, headings: Sequence[Text]) -> None:
        super().__init__(cursor_type="row")
        self._headings = headings
        self._widths: list[int] = []

    def fill(self, lines: Sequence[Line]) -> None:
        """Shows these lines; the cursor stays on its line while that is there."""
        columns = list(zip(self._headings, *(cells for _, cells in lines), strict=True))
        # Widths that textual finds out by itself come after a line is drawn, which may stay cut.
        widths = [max(each.cell_len for each in column) for column in columns]
        for heading, *cells in columns:
            for cell in cells:
                cell.justify = heading.justify
        same = [name for name, _ in lines] == [each.key.value for each in self.ordered_rows]
        if same and self._widths and all(map(le, widths, self._widths)):
            self._replace([cells for _, cells in lines])  # as to make it anew takes long
            return
        at, left, top = self.cursor_row, self.scroll_x, self.scroll_y
        chosen = self.ordered_rows[at].key if self.is_valid_row_index(at) else None
        self._widths = widths
        self.clear(columns=True)
        for heading, width in zip(self._headings, widths, strict=True):
            self.add_column(heading, width=width)
        for name, line in lines:
            self.add_row(*line, key=name)
        here = chosen is not None and chosen in self.rows
        self.move_cursor(row=self.get_row_index(chosen) if here and chosen else at, scroll=False)
        self.scroll_to(left, top, animate=False)

    def _replace(self, lines: Sequence[Sequence[Text]]) -> None:
        for row, cells in enumerate(lines):
            for column, cell in enumerate(cells):
                if self.get_cell_at(Coordinate(row, column)) != cell:
                    self.update_cell_at(Coordinate(row, column), cell)
