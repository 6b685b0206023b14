"""Several outboxes in one table, a line for each."""

from collections.abc import Sequence

from outbox_sdk.errors import OutboxError
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.clusters import taken_over_from
from outbox_core.config.duration import format_duration
from outbox_core.printable import printable
from outbox_core.snapshot import Snapshot

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
            cells = [*_cells(state), _taken_over(state)] if apart else _cells(state)
            table.add_row(Text(printable(title), "bold"), *cells)
    return table


def in_brief(snapshot: Snapshot) -> str:
    """Returns the most important of one outbox as a line."""
    said = zip(_HEADINGS[1:], _cells(snapshot), strict=True)
    return ", ".join(f"{heading} {cell}" for heading, cell in said if heading in _BRIEF)


def _taken_over(snapshot: Snapshot) -> Text:
    """Names the clusters whose records this one takes over."""
    found = taken_over_from(snapshot.clusters or ())
    return Text(", ".join(map(str, found)) or "-", "yellow" if found else "")


def _cells(snapshot: Snapshot) -> list[RenderableType]:
    backlog = snapshot.backlog
    oldest = "-" if backlog.oldest is None else format_duration(max(0.0, round(backlog.oldest, 1)))
    keys = snapshot.parked.keys
    cells: list[RenderableType] = [
        f"{'' if backlog.exact else '~'}{backlog.records:,}",
        oldest,
        Text(f"{keys:,}", "bold red" if keys else ""),
        f"{snapshot.total('purged_per_second'):,.0f}",
    ]
    if not snapshot.lanes:
        return [*cells, Text("none yet", "yellow"), "-", "-"]
    leader = snapshot.lanes[0]
    silent = all(snapshot.silent(lane) for lane in snapshot.lanes)
    return [
        *cells,
        Text(f"{printable(leader.holder)}{' (silent)' if silent else ''}", "yellow" if silent else ""),
        leader.since.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        Text(printable(str(leader.metrics.get("elector", "-")))),
    ]
