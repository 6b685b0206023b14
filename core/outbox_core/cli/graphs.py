"""The course of an outbox's figures as graphs of one line each, for ``outbox status --watch``."""

from collections.abc import Sequence
from math import ceil

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from outbox_core.config.duration import format_duration
from outbox_core.history import Point
from outbox_core.snapshot import Snapshot

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.:-=+*#"
_NARROWEST, _WIDEST = 8, 60
NARROWEST_WINDOW = 48
"""Columns; with fewer, numbers of seven digits beside the graphs would be cut."""
_LABEL_WIDTH = 7
"""As wide as the labels of the state above."""


def graphs(points: Sequence[Point], snapshot: Snapshot | None) -> Table:
    """Returns graphs of the backlog, the age of its oldest record and the rate, one line each.

    Args:
        points: In the order of time.
        snapshot: The present state; ``None`` if it is not known.
    """
    known = [point for point in points if point.known]
    backlog, oldest, rate = (
        (None, None, None)
        if snapshot is None
        else (snapshot.backlog.records, snapshot.backlog.oldest or 0.0, snapshot.total("purged_per_second"))
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=_LABEL_WIDTH, no_wrap=True, style="dim")
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for label, now, values, said in (
        ("backlog", backlog, [point.records for point in points], lambda value: f"{value:,}"),
        ("oldest", oldest, [point.oldest or 0.0 if point.known else None for point in points], _duration),
        ("rate", rate, [point.rate for point in points], lambda value: f"{value:,.0f}/s"),
    ):
        most = max((value for value in values if value is not None), default=None) if known else None
        table.add_row(
            label,
            Graph(values),
            f"now {'-' if now is None else said(now)}",
            f"max {'-' if most is None else said(most)}",
        )
    return table


class Graph:
    """Draws values from the left to the right, from zero to the greatest; unknown ones are blank.

    If there are more than fit, each column is the greatest of some of them.
    """

    def __init__(self, values: Sequence[float | None]) -> None:
        self._values = values

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        """Takes a width that does not depend on the values, so that nothing moves when there are more."""
        return Measurement(min(_NARROWEST, options.max_width), min(_WIDEST, options.max_width))

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Draws with ASCII alone where the console cannot encode blocks."""
        levels = _ASCII if options.ascii_only else _BLOCKS
        yield Text(drawn(self._values, min(_WIDEST, options.max_width), levels), no_wrap=True)


def drawn(values: Sequence[float | None], width: int, levels: str = _BLOCKS) -> str:
    """Returns a character for each value, or for each group of values if there are more than ``width``.

    Args:
        values: None is negative; ``None`` where the value is not known.
        width: So many characters at most.
        levels: The characters for zero and for what is more, ascending.
    """
    size = max(1, ceil(len(values) / max(1, width)))
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    columns = [max((value for value in group if value is not None), default=None) for group in groups]
    most = max((value for value in columns if value is not None), default=0.0)
    highest = len(levels) - 1
    return "".join(
        " " if value is None else levels[ceil(value / most * highest) if most else 0] for value in columns
    )


def _duration(seconds: float) -> str:
    return format_duration(max(0.0, round(seconds, 1)))
