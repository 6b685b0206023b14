"""The program that takes keys, until somebody quits."""

from __future__ import annotations

import asyncio
import logging
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from typing import ClassVar

from outbox_api.base.errors import OutboxError
from textual.app import App
from textual.binding import Binding, BindingType

from outbox_core.cli.invocation import StopRequest
from outbox_core.cli.outboxes import Chosen
from outbox_core.cli.watching.known import Watched
from outbox_core.cli.watching.screens import Help, Letter, Listing, Outbox, Overview
from outbox_core.status.snapshot import Snapshot

_TICK = 0.1
"""Seconds between two looks at whether to stop."""
_MOST_HELD = 1000


class Watch(App[None]):
    """Shows outboxes until somebody quits, or a signal asks to stop."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    VerticalScroll { height: auto; max-height: 75%; }
    Letter VerticalScroll, Help VerticalScroll { height: 1fr; max-height: 100%; }
    #about { color: $secondary; }
    Lines { height: 1fr; min-height: 4; }
    Lines:nocolor > .datatable--cursor { text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("question_mark", "help", "help"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", show=False),
    ]

    def __init__(self, watched: Watched, stop: StopRequest) -> None:
        super().__init__(ansi_color=True)  # the terminal's own colours, or none with NO_COLOR
        self._watched = watched
        self._stop = stop
        self.theme = "ansi-dark"
        self.animation_level = "none"

    async def on_mount(self) -> None:  # noqa: D102 - textual's
        self.set_interval(_TICK, self._end_if_asked)
        first = (
            Outbox(self._watched, *self._watched.outboxes)
            if self._watched.single
            else Overview(self._watched)
        )
        await self.push_screen(first)
        self.run_worker(self._look())

    async def action_back(self) -> None:
        """Leaves what was entered last: a text that is looked for, or a screen."""
        if isinstance(self.screen, Listing) and self.screen.forget():
            return
        if len(self.screen_stack) > 2:  # noqa: PLR2004 - textual's own and our first
            self.call_later(self.pop_screen)

    async def action_help(self) -> None:
        """Shows the keys, or goes back."""
        if isinstance(self.screen, Help):
            self.call_later(self.pop_screen)
        else:
            await self.push_screen(Help())

    async def _look(self) -> None:
        while self._watched.lasting is None:
            await self._watched.look()
            if isinstance(self.screen, Listing | Letter):
                self.screen.show()
            await asyncio.sleep(self._watched.pause)
        self.exit()

    def _end_if_asked(self) -> None:
        if self._stop.is_set() or self._is_gone():
            self.exit()

    def _is_gone(self) -> bool:
        """Returns whether the terminal has gone without a signal; textual would read its end for ever."""
        try:
            return not self.is_headless and not termios.tcgetattr(sys.__stdin__ or 0)
        except termios.error:
            return True

    def _fatal_error(self) -> None:
        """Ends the program; :func:`watch` raises the error. Textual would print variables: passwords."""
        self._close_messages_no_wait()

    @property
    def defect(self) -> Exception | None:
        """The error that has ended the program."""
        return self._exception


def watch(chosen: Chosen, pause: float, stop: StopRequest) -> list[tuple[str, Snapshot | OutboxError]]:
    """Shows outboxes, and takes keys, until somebody quits; returns what was found last.

    Args:
        chosen: The outboxes.
        pause: Seconds between two queries.
        stop: Ends it.

    Raises:
        OutboxError: of an outbox alone, if no later query can cure it.
    """
    watched = Watched(chosen, pause)
    app = Watch(watched, stop)
    with _held_log():
        app.run(mouse=False)  # so that the terminal's own selects and copies
    if (error := watched.lasting or app.defect) is not None:
        raise error
    return watched.found()


@contextmanager
def _held_log() -> Iterator[None]:
    """Holds lines of the log back while they would be written across the screen."""
    root, held = logging.getLogger(), BufferingHandler(_MOST_HELD)
    handlers, root.handlers = root.handlers, [held]
    try:
        yield
    finally:
        root.handlers = handlers
        for record in held.buffer:
            root.handle(record)
