"""What ``outbox status`` shows of each cluster of origin, as text."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from outbox_core.clusters import Role
from outbox_core.status import Cluster, date_and_clock, zone

_HEADINGS = ("cluster", "", "backlog", "oldest", "taken over", "takeover")
_NUMBERS = frozenset({"cluster", "backlog", "oldest", "taken over"})
_ROLES = {Role.OWN: "own", Role.OTHER: "other", Role.ORPHAN: "orphan: nobody serves it"}


def clusters_as_text(clusters: Sequence[Cluster]) -> Table:
    """Returns a table with a line for each cluster."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    for each in clusters:
        table.add_row(
            str(each.number),
            Text(_ROLES[each.role], "yellow" if each.orphans else ""),
            each.records,
            each.oldest or "-",
            Text(each.taken_over, "yellow" if each.recent else ""),
            _takeover(each),
        )
    return table


def _takeover(each: Cluster) -> Text:
    if each.takeover_since is None:
        return Text("-")
    reason = f": {each.takeover_reason}" if each.takeover_reason else ""
    since = f"{date_and_clock(each.takeover_since)} {zone(each.takeover_since)}"
    return Text(f"deliberate since {since}{reason}", "yellow")
