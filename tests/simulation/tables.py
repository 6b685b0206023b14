"""The rows of the outbox and of the fence, and their locks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from outbox_api import TransactionalLane

from .trail import Entry, Session

if TYPE_CHECKING:
    from .database import Transaction


class Row:
    """One row of the outbox, as it was committed last.

    Attributes:
        id: Its id, which may be given out anew once it is deleted.
        serial: The number of its record, which no other has; see :class:`tests.simulation.trail.Entry`.
        created: Its ``create_time``, in seconds.
        size: The bytes of its key and value.
        topic: Its record's topic.
        leader: The leader id in it, or ``None``.
        lock: The transaction that has changed it and not ended.
        gone: Whether it was deleted.
        kept: Whether a trigger keeps it, so that nobody can delete it.
    """

    __slots__ = (
        "bucket", "created", "gone", "id", "kept", "key", "leader", "lock", "serial", "size",
        "topic",
    )  # fmt: skip

    def __init__(self, number: int, entry: Entry) -> None:
        self.id = number
        self.serial = entry.serial
        self.created = entry.inserted_at
        self.size = len(entry.key) + entry.size
        self.key = entry.key
        self.topic = entry.topic
        self.bucket = entry.bucket
        self.leader: Any = None
        self.lock: Transaction | None = None
        self.gone = False
        self.kept = entry.kept


class Lock:
    """A lock on a fence row, or the advisory one; first come, first served."""

    __slots__ = ("_holders", "_queue")

    def __init__(self) -> None:
        self._holders: dict[Transaction, bool] = {}
        self._queue: list[tuple[Transaction, bool, Callable[[], None]]] = []

    def acquire(self, owner: Transaction, exclusive: bool, then: Callable[[], None]) -> None:
        """Calls ``then`` once the lock is granted, at once if it is free."""
        if not self._queue and self._free(exclusive):
            self._grant(owner, exclusive)
            then()
        else:
            self._queue.append((owner, exclusive, then))
            owner.wait_for(self)

    def release(self, owner: Transaction) -> None:
        self._holders.pop(owner, None)
        while self._queue:
            waiting, exclusive, then = self._queue[0]
            if not waiting.over:
                if not self._free(exclusive):
                    return
                self._grant(waiting, exclusive)
                waiting.waiting = False
            del self._queue[0]
            if not waiting.over:
                then()

    def _free(self, exclusive: bool) -> bool:
        return not self._holders if exclusive else not any(self._holders.values())

    def _grant(self, owner: Transaction, exclusive: bool) -> None:
        self._holders[owner] = exclusive
        owner.locks.append(self)


class FenceRow:
    """The fence of one lane, as it was committed last.

    Attributes:
        owner: The session that entered the lane, as nobody in the simulated world knows.
        releases: How often keys were freed.
        note: How the lane publishes in transactions; ``None`` for not.
        said: Topic → when the pause began that the lane's last heartbeat has said to be in effect.
    """

    __slots__ = ("epoch", "lanes", "lock", "note", "owner", "releases", "said", "token")

    def __init__(self) -> None:
        self.lanes = self.token = self.epoch = self.releases = 0
        self.note: TransactionalLane | None = None
        self.said: Mapping[str, str] = {}
        self.owner: Session | None = None
        self.lock = Lock()

    def belong_to(self, owner: Session | None) -> None:
        """Supersedes whoever entered the lane before; who enters it anew is superseded no more."""
        if self.owner is not None and self.owner is not owner:
            self.owner.superseded = True
            self.owner.losses += 1
        if owner is not None and owner.superseded:
            owner.superseded = False
            owner.trail.stale.clear()
        self.owner = owner
