"""What processes tell each other through the outbox's own database: who leads, and who is here."""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """A connection to the one lease of an outbox; used by one thread.

    A lease runs out after ``seconds`` by the database's clock, or when a process that wants it has seen the
    same renewal for that long by a monotonic clock of its own (:class:`outbox_api.election.LeaseWatch`),
    whichever comes first. The holder counts from before its call, by a monotonic clock, too.

    * If the database's clock goes back, a holder that renews keeps its lease, and one that is gone is
      replaced once somebody else has looked at the lease for its length.
    * If the clock goes forward, another process may take the lease early. The former holder learns it at its
      next renewal; until then both believe that they have it.

    Every method raises ``DriverError`` if the database refuses or cannot be reached. It is then unknown
    until the next call whether the call took effect.
    """

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes the lease if it is free or has run out, or renews the holder's own; durable on return.

        Standbys call it several times a second: it writes nothing and locks nothing for a process that does
        not get the lease.

        Args:
            holder: A name that no other process has ever used.
            seconds: For how long, from now on.

        Returns:
            The number of the leadership: the same while the holder stays the same, and larger with each new
            holder; ``None`` while another process holds the lease.
        """
        ...

    def release(self, holder: str) -> None:
        """Gives the lease up, if ``holder`` has it. Idempotent."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...
