"""The list of the harvesters that are alive, by which they share the outboxes of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Members(Protocol):
    """A connection to the list of members; used by one thread.

    The list says who is here and how many outboxes each leads. Nothing depends on it but how evenly the
    leaderships are spread, so it need not survive a crash of the database.

    Every method but ``close`` raises ``DriverError`` if the database refuses or cannot be reached. It is then
    unknown until the next call whether the call took effect.
    """

    def note(self, group: str, member: str, leads: int, seconds: float) -> Mapping[str, int]:
        """Notes that a member is here, and how many outboxes it leads.

        A list that is kept by a database never grows beyond the most members that were alive at a time: the
        place of one that has left, or has not noted itself for ten times ``seconds``, is given to the next.

        Args:
            group: The members that share outboxes; 64 characters. A longer name is cut and made distinct.
            member: A name that no other process has ever used; 128 characters, as above.
            leads: How many outboxes the member leads, 0 or more.
            seconds: For how long a member counts after it has noted itself, by the database's clock.

        Returns:
            Member → how many outboxes it leads, for all members of the group that count, itself included.
        """
        ...

    def leave(self, member: str) -> None:
        """Takes a member off the list at once. Idempotent, as is a note afterwards, which puts it back."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...
