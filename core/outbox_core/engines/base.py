"""Where lanes run: the contract of the engines."""

from __future__ import annotations

from typing import Protocol

from outbox_core.lanes.plan import Plan
from outbox_core.leadership.leader import Leadership


class Engine(Protocol):
    """Runs the lanes of one leadership at a time."""

    def warm(self) -> None:
        """Gets ready to start lanes without delay; again after :meth:`close`. May take many seconds.

        Raises:
            OutboxError: Lanes cannot be run here; the message says why and what to do. Close it then.
        """
        ...

    def start(self, plan: Plan, leadership: Leadership) -> None:
        """Starts all lanes of the plan and returns; they run until the leadership is over.

        Groups of lanes that can be lost without this process being told are announced to the leadership,
        which counts their silence.
        """
        ...

    def join(self, timeout: float) -> bool:
        """Waits up to ``timeout`` seconds for all lanes to end; returns whether they have.

        Raises:
            EngineLost: The engine has ended the lanes, and must be closed and warmed again.
            Exception: What ended a lane that broke one of its own rules.
        """
        ...

    def check(self) -> None:
        """Looks whether lanes could still be started; cheap.

        Raises:
            EngineLost: They could not until it is closed and warmed again.
            OutboxError: They could not; only a new process helps.
        """
        ...

    def cancel(self) -> None:
        """Has lanes ended that did not end when told; their work in flight has an unknown outcome.

        Never waits, and may be called again and again: :meth:`join` tells whether they have ended.
        """
        ...

    def close(self) -> None:
        """Frees everything within a few seconds, also what hangs. Idempotent."""
        ...
