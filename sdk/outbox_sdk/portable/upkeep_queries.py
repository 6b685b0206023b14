"""How one database tells what waits to be removed, and who prevents it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpkeepQueries:
    """Queries without parameters. A database that refuses one to a user does so for good.

    Attributes:
        unit: What ``dead`` counts, see ``Upkeep``.
        dead: Queries for the number of what waits to be removed, in the first column of the only row. Servers
            differ in what they permit: the next is sent if there is an error or no row.
        snapshot: The query for the oldest snapshot: its owner, and its age in seconds; no row if there is
            none. Only a user who sees everybody's may send it.
    """

    unit: str
    dead: tuple[str, ...]
    snapshot: str
