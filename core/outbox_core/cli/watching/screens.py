"""What a terminal shows: all outboxes, the worst first; one of them; and a key that is parked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import ClassVar

from outbox_api.base.errors import OutboxError
from outbox_api.seams.parking import DeadLetter
from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from outbox_core.cli.dead_letters import as_grid, facts
from outbox_core.cli.snapshot import (
    OVERVIEW_HEADINGS,
    OVERVIEW_NUMBERS,
    STYLES,
    overview,
    overview_cells,
    status_as_text,
)
from outbox_core.cli.watching.known import Watched
from outbox_core.cli.watching.lines import MOST_LINES, Line, Lines, Plain
from outbox_core.status.model import Status, overall, worst_first
from outbox_core.status.verdict import State
from outbox_core.text.printable import printable
from outbox_core.text.redaction import redact_addresses
from outbox_core.text.wording import counted, duration

_REST = 10.0
"""How many times as long as it takes to read the parked keys they are not read again."""
_WIDEST = 40
"""Columns of a name in a table; all of it is where it is opened."""

_NUMBERS = OVERVIEW_NUMBERS | {"id", "attempts", "age"}
_KEYS = (
    ("j k, arrows", "move; arrows to the side show what the window cuts"),
    ("Enter", "open an outbox, or a key that is parked"),
    ("Esc", "go back; forget the text"),
    ("/", "show what contains a text: titles; keys, topics and reasons"),
    ("p", "show outboxes with problems alone, or all again"),
    ("Tab", "go from the table to what is above, to scroll that, and back"),
    ("Ctrl-Z", "suspend it; fg resumes it"),
    ("q, Ctrl-C", "quit"),
)


class Listing(Screen[None]):
    """A table below what is said of it; a text narrows it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "find", "find")]
    HEADINGS: ClassVar[Sequence[str]]

    def compose(self) -> ComposeResult:  # noqa: D102 - of the base class
        with VerticalScroll():
            yield Static(id="above")
        yield Static(id="about")
        yield Lines([Text(each, justify="right" if each in _NUMBERS else "left") for each in self.HEADINGS])
        yield Input(placeholder="Enter keeps the text, Esc forgets it", compact=True)
        yield Footer()

    def on_mount(self) -> None:  # noqa: D102 - textual's
        self.query_one(Lines).focus()
        self.query_one(Input).display = False

    def on_screen_resume(self) -> None:  # noqa: D102 - textual's
        self.show()

    def show(self) -> None:
        """Shows what is known now."""
        if not self.query("#above"):  # it is being made, or taken away
            return
        above, about, lines = self.known()
        self.query_one("#above", Static).update(Plain(above))
        self.query_one("#about", Static).update(Plain(about))
        self.query_one(Lines).fill(lines)

    def known(self) -> tuple[RenderableType, Text, Sequence[Line]]:
        """Returns what is above, what is said of the table, and its lines."""
        raise NotImplementedError

    def has_text(self, *texts: str) -> bool:
        """Returns whether one of the texts contains the one that is looked for."""
        wanted = self.query_one(Input).value.casefold()
        return any(wanted in each.casefold() for each in texts)

    def on_input_changed(self) -> None:  # noqa: D102 - textual's
        self.show()

    def on_input_submitted(self) -> None:  # noqa: D102 - textual's
        self.query_one(Input).display = bool(self.query_one(Input).value)
        self.query_one(Lines).focus()

    def action_find(self) -> None:
        """Takes a text to look for."""
        self.query_one(Input).display = True
        self.query_one(Input).focus()

    def forget(self) -> bool:
        """Forgets the text that is looked for; returns whether there was one."""
        field = self.query_one(Input)
        asked, field.value, field.display = field.display, "", False
        self.query_one(Lines).focus()
        return asked


class Overview(Listing):
    """All outboxes, the worst first."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("p", "problems", "problems")]
    HEADINGS = (OVERVIEW_HEADINGS[0], "state", *OVERVIEW_HEADINGS[1:])

    def __init__(self, watched: Watched) -> None:
        super().__init__()
        self._watched = watched
        self._problems = False

    def action_problems(self) -> None:
        """Shows those alone that are not well, or all again."""
        self._problems = not self._problems
        self.show()

    def known(self) -> tuple[RenderableType, Text, Sequence[Line]]:  # noqa: D102 - of the base class
        statuses = worst_first(self._watched.statuses())
        verdict = overall(statuses)
        shown = [each for each in statuses if self.has_text(each.title)]
        if self._problems:
            shown = [each for each in shown if each.verdict.state is not State.WELL]
        only = ", those with problems" if self._problems else ""
        about = Text(f"{len(shown)} of {len(statuses)} shown{only}{_more(shown)}")
        above = _styled(verdict.said, verdict.state) if statuses else overview([])
        return above, about, [(each.title, self._cells(each)) for each in shown[:MOST_LINES]]

    @staticmethod
    def _cells(status: Status) -> list[Text]:
        age = f", {status.age} ago" if status.age else ""
        state = _styled(f"{status.verdict.short}{age}", status.verdict.state)
        return [_cut(status.title), state, *overview_cells(status)]

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:  # noqa: D102 - textual's
        await self.app.push_screen(Outbox(self._watched, event.row_key.value or ""))


class Outbox(Listing):
    """What ``outbox status`` shows of an outbox, and the keys that are parked."""

    HEADINGS = ("key", "id", "topic", "attempts", "age", "reason")

    def __init__(self, watched: Watched, title: str) -> None:
        super().__init__()
        self._watched, self._title = watched, title
        self._letters: dict[str, DeadLetter] | None = None
        self._error = ""

    def on_mount(self) -> None:  # noqa: D102 - textual's, which calls that of the base class, too
        self.run_worker(self._read())

    async def _read(self) -> None:
        while self._title in self._watched.outboxes:  # and is no template that cannot be looked for
            began = monotonic()
            try:
                found = await self._watched.parked(self._title)
                self._letters, self._error = {str(each.record.id): each for each in found}, ""
            except OutboxError as error:
                self._error = redact_addresses(str(error))
            if self.is_current:
                self.show()
            await asyncio.sleep(max(self._watched.pause, _REST * (monotonic() - began)))

    def letter(self, number: str) -> DeadLetter | None:
        """Returns a dead letter by the id of its record, while its key is parked."""
        return (self._letters or {}).get(number)

    def known(self) -> tuple[RenderableType, Text, Sequence[Line]]:  # noqa: D102 - of the base class
        known = self._watched.known[self._title]
        status = self._watched.status(self._title)
        above = status_as_text(status, known.snapshot.pauses if known.snapshot else ())
        letters = self._letters or {}
        found = [
            (number, each)
            for number, each in letters.items()
            if self.has_text(each.record.key, each.record.topic, each.reason)
        ]
        parked = "" if self._letters is None else f": {counted(len(found), 'key')} parked{_more(found)}"
        error = "" if known.error else self._error
        about = Text(printable(error or self._title + parked), "yellow" if error else "")
        return above, about, [(number, self._cells(each)) for number, each in found[:MOST_LINES]]

    @staticmethod
    def _cells(letter: DeadLetter) -> list[Text]:
        record = letter.record
        number, attempts, age = str(record.id), f"{letter.attempts:,}", duration(letter.age)
        texts = (number, printable(record.topic), attempts, age, printable(letter.reason))
        return [_cut(record.key), *map(Text, texts)]

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:  # noqa: D102 - textual's
        await self.app.push_screen(Letter(self, event.row_key.value or ""))


class _Page(Screen[None]):
    """A text."""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="above")
        yield Footer()

    def on_screen_resume(self) -> None:
        self.show()

    def show(self) -> None:
        """Shows what is known now."""
        for each in self.query("#above").results(Static):  # none while it is being made, or taken away
            each.update(Plain(self.text()))

    def text(self) -> RenderableType:
        """Returns the text."""
        raise NotImplementedError


class Letter(_Page):
    """What is known of a key that is parked, but for the headers and the value of its record."""

    def __init__(self, outbox: Outbox, number: str) -> None:
        super().__init__()
        self._outbox, self._number = outbox, number
        self._letter = outbox.letter(number)

    def text(self) -> RenderableType:  # noqa: D102 - of the base class
        there = self._outbox.letter(self._number)
        self._letter = there or self._letter
        below = Text(f"Its value: outbox parked show --id {self._number}", "dim")
        if there is None:
            below = Text("It is not parked any more.", "yellow")
        return Group(*([as_grid(facts(self._letter))] if self._letter else []), "", below)


class Help(_Page):
    """The keys."""

    def text(self) -> RenderableType:  # noqa: D102 - of the base class
        return as_grid(_KEYS)


def _styled(text: str, state: State) -> Text:
    return Text(text, STYLES.get(state, "yellow"))


def _cut(text: str) -> Text:
    cut = Text(printable(text))
    cut.truncate(_WIDEST, overflow="ellipsis")
    return cut


def _more(found: Sequence[object]) -> str:
    return f", the first {MOST_LINES:,} here" if len(found) > MOST_LINES else ""
