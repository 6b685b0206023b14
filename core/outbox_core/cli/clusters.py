"""What ``outbox status`` shows of each cluster of origin, as data and as text."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from outbox_core.clusters import ClusterState, Role
from outbox_core.config.duration import format_duration
from outbox_core.printable import printable

_HEADINGS = ("cluster", "", "backlog", "oldest", "taken over", "last taken", "takeover")
_NUMBERS = frozenset({"cluster", "backlog", "oldest", "taken over", "last taken"})
_ROLES = {Role.OWN: "own", Role.OTHER: "other", Role.ORPHAN: "orphan: nobody serves it"}


def clusters_as_text(clusters: Sequence[ClusterState]) -> Table:
    """Returns a table with a line for each cluster."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    for each in clusters:
        orphans = each.role is Role.ORPHAN and each.records
        table.add_row(
            str(each.cluster),
            Text(_ROLES[each.role], "yellow" if orphans else ""),
            f"{each.records:,}{'' if each.exact else ' or more'}",
            "-" if each.oldest is None else format_duration(max(0.0, round(each.oldest, 1))),
            Text(f"{each.taken_over:,}", "yellow" if each.recent else ""),
            "-" if each.seconds_ago is None else f"{format_duration(round(each.seconds_ago, 1))} ago",
            _takeover(each),
        )
    return table


def _takeover(each: ClusterState) -> Text:
    if each.takeover is None:
        return Text("-")
    since = each.takeover.since.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    reason = f": {printable(each.takeover.reason)}" if each.takeover.reason else ""
    return Text(f"deliberate since {since}{reason}", "yellow")
