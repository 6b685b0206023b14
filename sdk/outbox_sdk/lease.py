"""A lease in the outbox's own database, for electors that want nothing else."""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """A connection to the one lease of an outbox; used by one thread.

    Time is the database's. Whoever has the lease counts its own time from before it asked, by a clock that
    never goes back, and so never holds it for longer than the database does.

    Every method raises ``DriverError`` when the database refuses or cannot be reached; whether a call took
    effect is then unknown until the next.
    """

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes the lease if it is free or has run out, or renews the holder's own; durable on return.

        Args:
            holder: Who wants it: unlike any other process that ever did.
            seconds: For how long, from now on.

        Returns:
            The term's number: the same while the holder stays the same, larger with each other one; ``None``
            while somebody else has it.
        """
        ...

    def release(self, holder: str) -> None:
        """Gives the lease up, if ``holder`` has it. Idempotent."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...
