"""What the product's code makes of each state of a leader; the same question is asked once."""

from __future__ import annotations

from typing import Any

from .harvester import Harvester, Seen
from .scope import Scope
from .world import Process

_RAISED = b"raised "


class Leader:
    """A leader in all its states."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._known: dict[Any, Process] = {}
        self._all_seen: dict[Process, Seen] = {}

    def first(self, leader: int) -> Process:
        """Returns its state at the start, under a leader id."""
        return Harvester(self._scope, leader=leader).frozen()

    def seen(self, process: Process) -> Seen:
        """Returns what it may do."""
        if (seen := self._all_seen.get(process)) is None:
            seen = self._all_seen[process] = Harvester(self._scope, process).seen()
        return seen

    def do(self, process: Process, what: str, *how: Any, **more: Any) -> Process:
        """Returns its state after one of the methods of :class:`Harvester`."""
        asked = process, what, how, *more.items()
        if (after := self._known.get(asked)) is None:
            try:
                after = getattr(Harvester(self._scope, process), what)(*how, **more)
            except Exception as error:  # noqa: BLE001 - a bug found, to be told with its history
                after = process._replace(memory=_RAISED + repr(error).encode())
            self._known[asked] = after
        return after


def raised(process: Process | None) -> str:
    """Returns what the product's code raised on the way to a state, empty for nothing."""
    broken = process is not None and process.memory.startswith(_RAISED)
    return process.memory.removeprefix(_RAISED).decode() if process and broken else ""
