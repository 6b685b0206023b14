"""Several outboxes in one table, a line for each."""

from collections.abc import Sequence
from datetime import UTC, datetime

from outbox_sdk.errors import OutboxError
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.printable import printable
from outbox_core.snapshot import Snapshot
from outbox_core.status import LastStatus, Status, date_and_clock, status_of

_HEADINGS = ("outbox", "backlog", "oldest", "parked", "records/s", "leader", "since", "elector")
_BRIEF = frozenset({"backlog", "oldest", "parked", "records/s", "leader"})
_NUMBERS = frozenset({"backlog", "oldest", "parked", "records/s"})


def overview(found: Sequence[tuple[str, Snapshot | OutboxError]]) -> RenderableType:
    """Returns a table of outboxes.

    Args:
        found: The title of each, and its state, or why that is not known.
    """
    if not found:
        return "the configuration names no outbox, and its templates match no table"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    apart = any(isinstance(state, Snapshot) and state.clusters is not None for _, state in found)
    for heading in (*_HEADINGS, "takes over") if apart else _HEADINGS:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    for title, state in found:
        if isinstance(state, OutboxError):
            table.add_row(Text(printable(title), "bold"), *"----", Text("not known, see below", "yellow"))
        else:
            status = _status(state)
            cells = [*_cells(status), _taken_over(status)] if apart else _cells(status)
            table.add_row(Text(printable(title), "bold"), *cells)
    return table


def in_brief(snapshot: Snapshot) -> str:
    """Returns the most important of one outbox as a line."""
    said = zip(_HEADINGS[1:], _cells(_status(snapshot)), strict=True)
    return ", ".join(f"{heading} {cell}" for heading, cell in said if heading in _BRIEF)


def _status(snapshot: Snapshot) -> Status:
    now = datetime.now(UTC)
    return status_of(snapshot.outbox, LastStatus(snapshot, now), now)


def _taken_over(status: Status) -> Text:
    """Names the clusters whose records this one takes over."""
    return Text(status.takes_over or "-", "yellow" if status.takes_over else "")


def _cells(status: Status) -> list[RenderableType]:
    figures, leader = status.figures, status.leader
    assert figures is not None  # noqa: S101 - of a snapshot
    cells: list[RenderableType] = [
        figures.backlog,
        figures.oldest or "-",
        Text(figures.parked, "bold red" if figures.parked_keys else ""),
        figures.rate,
    ]
    if leader is None:
        return [*cells, Text("none yet", "yellow"), "-", "-"]
    name = f"{printable(leader.name)}{' (silent)' if leader.silent else ''}"
    elector = Text(printable(leader.elector) or "-")
    return [*cells, Text(name, "yellow" if leader.silent else ""), date_and_clock(leader.since), elector]
