"""The keys of an at-least-once lane that failed: which are held, and until when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from outbox_api import Failure, Poison

from outbox_core.delivery.held import FORGET_SECONDS
from outbox_core.delivery.retries import MAX_FAILED_BYTES, Hold, RetryPolicy


class HeldKeys:
    """The keys that failed and of which nothing was delivered since, whether held now or not.

    Of the marked rows of a key that is held, only the ids are kept.

    Attributes:
        holds: By key, in the order of their first failures.
        keys: Those that are held now; ordered, so that the excluded ones change as rarely as possible.
        rows: Marked rows of held keys.
        size: Bytes (or characters) of held keys.
        tailed: Held keys of which more than one row was marked; ordered.
        policy: For how long keys are held, and when they are parked.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self.holds: dict[str, Hold] = {}
        self.keys: dict[str, None] = {}
        self.rows = self.size = 0
        self.tailed: dict[str, None] = {}
        self._ends: list[tuple[float, str]] = []

    def take_in(self, key: str, number: int) -> None:
        """Adds a row that was marked while its key is held."""
        self.holds[key].ids.append(number)
        self.tailed[key] = None
        self.rows += 1

    def hold(self, now: float, failures: Sequence[Failure], waiting: Iterable[int]) -> bool:
        """Holds a key; another failure of its first record makes the hold longer.

        Args:
            now: The time.
            failures: Those of the key, in order; one at least.
            waiting: The ids of its marked rows behind these.

        Returns:
            Whether its first record had failed before.
        """
        first = failures[0].record
        key = first.key
        hold = self.holds.get(key)
        if hold is None or hold.head != first.id:
            self.holds.pop(key, None)
            hold = self.holds[key] = Hold(first.id, now)
        hold.ids = [*(failure.record.id for failure in failures), *waiting]
        if len(hold.ids) > 1:
            self.tailed[key] = None
        again = hold.failures > 0
        # Any of those that were refused together may be at fault; it is sent alone next.
        hold.add(replace(failures[0], innocent=failures[0].innocent or failures[0].suspect))
        self.keys[key] = None
        self.size += len(key)
        hold.parking = self.policy.parks(hold)
        self._hold_until(key, now if hold.parking else now + self.policy.pause(hold))
        self.rows += len(hold.ids)
        return again

    def delivered(self, key: str, number: int) -> bool:
        """Forgets the failure of a key of which a record is delivered; returns whether there was one.

        A record with a lower id tells nothing of the one that failed: it was committed later, or comes from
        another source.
        """
        hold = self.holds.get(key)
        if hold is None or hold.head > number:
            return False
        del self.holds[key]
        return True

    def over(self, now: float) -> list[str]:
        """Returns the keys whose hold has ended since the last call; they stay held until :meth:`unhold`."""
        over = []
        while self._ends and self._ends[0][0] <= now:
            _, key = heappop(self._ends)
            if key in self.keys:
                over.append(key)
        return over

    def next_end(self) -> float:
        """Returns when the next hold ends; infinity if there is none."""
        return self._ends[0][0] if self._ends else float("inf")

    def split(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """Splits held keys into those to be parked and those to be tried again."""
        parking: list[str] = []
        retrying: list[str] = []
        for key in keys:
            hold = self.holds[key]
            # A record that a remark forgot must be marked and fail again before it is parked.
            (parking if hold.parking and hold.ids else retrying).append(key)
        return parking, retrying

    def poisons(self, keys: Iterable[str]) -> list[Poison]:
        """Returns the heads of held keys that are to be parked."""
        return [self.holds[key].poison() for key in keys]

    def ids(self, keys: Iterable[str]) -> list[int]:
        """Returns the ids of the marked rows of held keys."""
        return [number for key in keys for number in self.holds[key].ids]

    def park(
        self, keys: Collection[str], parked: int, locked: Collection[int] = (), until: float = 0.0
    ) -> int:
        """Removes held keys, of which ``parked`` are parked now.

        Args:
            keys: The keys.
            parked: How many are parked.
            locked: Rows that others have locked. A key with such a head is to be parked again when its hold
                ends; of one with other such rows, these are to be reset then.
            until: When their holds end.

        Returns:
            How many should have been parked: those whose heads nobody had locked.
        """
        free = [key for key in keys if self.holds[key].head not in locked]
        for key in keys:
            if self._rests(key, locked, until):
                self.holds[key].parking = self.holds[key].head in locked
            else:
                self.rows -= len(self.holds.pop(key).ids)
                self._free(key)
        self.policy.parking_done(len(free), parked)
        return len(free)

    def unhold(self, keys: Iterable[str], locked: Collection[int] = (), until: float = 0.0) -> None:
        """Frees held keys whose rows were reset; their failures stay known.

        A key of which others have locked rows stays held, until these are reset. See :meth:`park`.
        """
        for key in keys:
            hold = self.holds[key]
            self.policy.parking -= hold.parking
            hold.parking = False
            if not self._rests(key, locked, until):
                self.rows -= len(hold.ids)
                hold.ids = []
                self._free(key)

    def blocked(self, now: float) -> tuple[int, float, str]:
        """Returns how many keys have failed, for how many seconds the first of them, and why; 0 for none."""
        first = next(iter(self.holds.values()), None)
        return len(self.holds), now - first.since if first else 0.0, first.reason if first else ""

    def forget_rows(self) -> None:
        """Forgets the rows of held keys; the keys stay held."""
        for hold in self.holds.values():
            hold.ids = []
        self.rows = 0

    def forget_gone(self, now: float, busy: Collection[str]) -> None:
        """Removes failures of free keys whose rows never came again, and the oldest if there are many."""
        size = 0
        for key, hold in reversed(list(self.holds.items())):
            if key not in self.keys and key not in busy:
                size += len(key)
                if size > MAX_FAILED_BYTES or hold.until + FORGET_SECONDS < now:
                    del self.holds[key]

    def _hold_until(self, key: str, until: float) -> None:
        self.holds[key].until = until
        heappush(self._ends, (until, key))

    def _rests(self, key: str, locked: Collection[int], until: float) -> bool:
        """Keeps a key held with those of its rows that others have locked; returns whether there are any."""
        hold = self.holds[key]
        rest = [number for number in hold.ids if number in locked] if locked else []
        if rest:
            self.rows -= len(hold.ids) - len(rest)
            hold.ids = rest
            self._hold_until(key, until)
        return bool(rest)

    def _free(self, key: str) -> None:
        del self.keys[key]
        self.size -= len(key)
        self.tailed.pop(key, None)
