"""Recoveries that take no account of some replies, or leave out requests; see ``takeover_mutants``."""

from __future__ import annotations

from typing import Any

from outbox_api import Advanced, Batch, Fence
from outbox_core.delivery.recovery import Opened, Recovered, Recovery, Servers


class Altered:
    """Has some attributes of its own, and all others of an object."""

    def __init__(self, of: Any, **own: Any) -> None:
        self._of = of
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


class PurgedWhereNamed(Recovery):
    """Checks the fence only where the checkpoint names something, and else writes an empty one unchecked."""

    def open(self, servers: Servers, lane: int) -> Opened:
        def advance(fence: Fence, batches: list[Batch], *_: Any) -> Advanced:
            return servers.table.advance(fence, batches, [], 0) if batches else Advanced(0, [])

        return super().open(Altered(servers, table=Altered(servers.table, advance=advance)), lane)


def _locks_unseen(servers: Servers) -> Any:
    def advance(*arguments: Any) -> Advanced:
        return servers.table.advance(*arguments)._replace(locked=())

    return Altered(servers, table=Altered(servers.table, advance=advance))


class LocksUnseen(Recovery):
    """Writes an empty checkpoint also where rows were locked."""

    def open(self, servers: Servers, lane: int) -> Opened:
        return super().open(_locks_unseen(servers), lane)


class LocksUntold(Recovery):
    """Does not tell the lane which rows were locked."""

    def open(self, servers: Servers, lane: int) -> Opened:
        return super().open(servers, lane)._replace(locked=())


class LocksLeftBehind(Recovery):
    """Ends the note of a former lane though some of its rows were locked."""

    def _recover_lane(self, servers: Servers, lane: int) -> Recovered:
        return super()._recover_lane(_locks_unseen(servers), lane)
