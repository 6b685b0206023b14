"""A console that prints texts as they are: none of them is markup, and none can drive the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from outbox_core.text.printable import printable


class PlainConsole(Console):
    """Escapes what does not print, and takes nothing for markup, a name of an emoji or worth a colour.

    Line breaks stay. So whoever prints a text of which a line break would be taken for the next line, such as
    a name in a list, escapes it before: :func:`outbox_core.text.printable.printable`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Returns a text, escaped before it is measured."""
        return super().render_str(printable(text, "\n"), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Returns segments, of which only those of rich itself control the terminal."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text, "\n"), segment.style)
