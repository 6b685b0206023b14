"""The connection over which the leader moves rows of other tables into one outbox; see ``intake``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class IntakeState:
    """What is to be said of an intake.

    Attributes:
        table: The table.
        moved: How many rows it has moved.
        stuck: For how many seconds it has moved none, though rows wait.
        held: How many keys are held back, as their first row cannot be moved.
        reason: Why nothing moves, or why the row that is held back longest is; free of secrets.
        held_for: For how many seconds that row is held back.
    """

    table: str
    moved: int = 0
    stuck: float = 0.0
    held: int = 0
    reason: str = ""
    held_for: float = 0.0


class Intakes(Protocol):
    """Moves rows of other tables into one outbox; used by one thread, and connected while there is need.

    Only the leader's moves are done: each transaction holds the fence against a bump.
    """

    def require(self) -> None:
        """Makes sure that rows of all tables can be taken in.

        Raises:
            DriverError: They cannot be, or the database cannot be reached (retryable).
        """
        ...

    def take(self, token: int, max_bytes: int) -> bool:
        """Moves a portion of each table, each in one durable transaction, in the order of its rows.

        A row that others have locked, or that the outbox refuses, stays in its table, and later rows of its
        key with it; it is tried again later. A row that cannot be mapped is moved, and says why.

        Args:
            token: The caller's.
            max_bytes: A row of more bytes is held back, and not read.

        Returns:
            Whether more rows may be moved at once.

        Raises:
            LeadershipLost: The token is no longer the fence's; nothing was moved.
            DriverError: A table cannot be taken in; others were, as far as possible.
        """
        ...

    def states(self) -> Sequence[IntakeState]:
        """Returns what is to be said of each table."""
        ...

    def close(self) -> None:
        """Disconnects; the next call connects anew. Idempotent, and never raises."""
        ...
