"""What a candidate for leadership does; see ``candidacy``, which decides when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from outbox_core.events import Event
from outbox_core.leadership.leader import Leadership


class Actions(Protocol):
    """The election, the engine, the servers and the observers of one candidate. Calls block."""

    def clock(self) -> float:
        """Returns seconds on a clock that never goes back."""
        ...

    def lease(self) -> float:
        """Returns for how many more seconds the elector confirms leadership."""
        ...

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Waits until a condition holds, and no longer than ``seconds``; returns whether it holds."""
        ...

    def changed(self) -> None:
        """Has conditions that are waited for looked at again. Never blocks; any thread may call it."""
        ...

    def announce(self, event: Event) -> None:
        """Calls the event handler."""
        ...

    def become_leader(self) -> int:
        """Raises the fence and recovers former lanes; see :func:`outbox_core.delivery.recovery.take_over`.

        Returns:
            The fence token.

        Raises:
            LeadershipLost: Another process has raised the fence meanwhile.
            DriverError: The database or the broker cannot be used.
        """
        ...

    def reach_servers(self) -> None:
        """Makes sure that database and broker answer this process."""
        ...

    def find_rival(self) -> str | None:
        """Looks who has raised the fence.

        Returns:
            ``None`` if no other process is known to have; else that it leads by another election, in words,
            or empty if it is not known to.
        """
        ...

    def resign(self, then: Callable[[], None]) -> None:
        """Leaves the election without waiting for it; calls ``then`` once it has left."""
        ...

    def leave_election(self) -> None:
        """Leaves the election, and waits for that."""
        ...

    def join_election(self) -> None:
        """Joins the election again, unless the process is to end."""
        ...

    def warm_engine(self) -> None:
        """Prepares the engine to start lanes."""
        ...

    def check_engine(self) -> None:
        """Makes sure that lanes could be started.

        Raises:
            EngineLost: They could not until the engine is replaced.
            OutboxError: Only a new process helps.
        """
        ...

    def close_engine(self) -> None:
        """Frees the engine and ends its lanes, also those that hang."""
        ...

    def start_lanes(self, leadership: Leadership) -> None:
        """Starts the lanes of a leadership, without waiting for them."""
        ...

    def join_lanes(self, seconds: float) -> bool:
        """Waits up to ``seconds`` for all lanes to end; returns whether they have.

        Raises:
            EngineLost: The engine has ended them.
            Exception: A lane has a defect.
        """
        ...

    def cancel_lanes(self) -> None:
        """Ends lanes that did not end when ordered to, without waiting for them."""
        ...
