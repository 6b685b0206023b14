"""From which id a mark may start: behind ids below which no row can appear any more.

A mark must take the earliest rows, and a row with a low id may appear late, because ids are given out when a
row is inserted and become visible when its transaction commits. A mark that reads from the
head of the table is always correct, but reads every row that another lane still has there and, while an old
snapshot is open, every row deleted since.

What makes it safe to skip: ``nextval`` locks the sequence for its transaction before it takes a number, and
the lock stays until the transaction has ended, be it prepared, rolled back to a savepoint or both. So

1. one statement reads the newest visible id N, and after it which transactions hold that lock;
2. a transaction that took an id up to N had the lock by then: it has ended, or it is among these holders;
3. once none of these holders is left, every snapshot taken from then on shows each row up to N that there
   will ever be. N + 1 is the *horizon*.

N is no newer than the last id that the sequence gave out, where that may be read: a row whose id somebody
chose may lie far above all others, and marks would start behind those.

A mark that began after that and took every row of its lane below some id at or below the horizon need not be
followed by another look there, until the lane takes a new leader id, resets a row, or a key is freed.

The last is done by other processes. A mark leaves out the rows of parked keys, and takes what it left out for
settled like what it took. That holds as long as each of these keys is parked:

4. whoever frees a key raises the fence's *releases* in the same transaction;
5. a mark reads releases and parked keys from one snapshot. If it sees a key freed that an earlier mark of its
   connection saw parked, it sees more releases than that one did, and then reads from the head;
6. if it does not see the key freed, it leaves out every row of the key, wherever it starts: even where it had
   to wait for the fence until the key was free, since all that it chooses by is as old as its snapshot.

So no mark takes a later row of the key and leaves an earlier one behind. A release shows first in a mark's
reply, as the mark reads from the head by itself. A key that this connection parks is left out by its next
mark and needs no look at the head; but if its head was gone, its tail was reset all the same and is free.

A selection of exactly-once delivery follows the same rules. It changes no rows; so those behind the start are
known by their batches, the sets of ids that earlier selections of the connection returned:

7. every row of the lane behind the start is in a *batch behind*, or its key is parked. A selection starts
   there only if it leaves out all batches behind: those pending, and those it deletes. What it passes above
   the start is of these too, or parked, or now of its own batch. So behind the next start there are the
   pending and its own;
8. a batch behind that a selection does not leave out was abandoned, or cut short. Its rows have not changed:
   the selection starts at the first of them at the latest;
9. nobody else selects or deletes for the lane while the fence stands. A new fence starts at the head.

Rows of a finished batch that others have locked stay behind the start, and in no batch behind: they are
published, and the caller passes them with every call until they are deleted.

A mark may be told to leave out keys besides. They are like batches behind, not like parked keys, as nobody's
snapshot says which they are:

10. every row of the lane behind the start carries a claimed name, or its key is parked, or it is one of the
    *keys behind*: those that the latest mark left out. A mark starts there only if it leaves out all of them,
    and what it passes above the start is of keys that it leaves out itself. So behind the next start there
    are those, and no others;
11. a mark that does not leave out a key behind reads from the head, and finds the key's earliest row there
    before any later one. If it fails, the keys behind are what they were.

How many rows a mark takes at most, by number or by bytes, is no matter to the proof: it takes all up to the
highest that it takes, and where there is one to take it takes one.

The sequence may begin anew (``TRUNCATE ... RESTART IDENTITY``, ``ALTER SEQUENCE ... RESTART``), with another
file. Each mark and selection reads the number of the file with the releases:

12. who takes an id of the new file does so after the old one is gone for everybody. So a statement that
    sees a row with such an id sees another number than those before it. Then it takes nothing, and the
    connection is given up: its start and horizon are of other ids.

Where several clusters harvest copies of one table, a mark takes rows of one of them (ADR 32), and all of this
is about the own rows only: "row" is a row that carries the own cluster's number, and N is the newest id of
these. Replication writes rows of other clusters, whose ids come from other sequences, in any order. Marks of
those always read from the head.

13. an own row comes from the local sequence, as the column's default gives the own number to what is written
    here, and to nothing else. No row with the own number arrives by replication below an id that was seen,
    except by a restore from another cluster's copy. The look at the head finds such rows later.

The proof rests on ids that come from a sequence without cache, in the transaction that inserts them. The
dialect asks for the first (``layout.sequence``); against the second a look at the head is taken now and then,
and a row that it finds there ends the trust in everything found so far.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import monotonic

from outbox_api import Batch

FIRST = -(2**63)
"""Below every id: the head of the table."""

LAST = 2**63 - 1
"""The greatest id."""

LISTING_INTERVAL = 0.5
"""Seconds between two looks at the newest id and the holders of the sequence, at most."""

LISTING_RECORDS = 10_000
"""After this many marked records the next look comes earlier."""

HEAD_INTERVAL = 5.0
"""Seconds between two looks at the head, at least."""

HEAD_SHARE = 50
"""After a look at the head there is none for this many times its duration."""


class Settled:
    """Computes for one connection from which id a mark may start, as the module's text proves. Does no I/O.

    Args:
        clock: Seconds on a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._start = FIRST
        self._horizon = FIRST
        self._candidate = FIRST
        self._holders: frozenset[str] = frozenset()
        self._claimant: object = None
        self._behind: tuple[Batch, ...] = ()
        self._keys_behind: frozenset[str] = frozenset()
        self._listing_due = clock()
        self._unlisted = 0
        self._head_due = clock() + HEAD_INTERVAL
        self._began: tuple[int, float, frozenset[str]] = (FIRST, 0.0, frozenset())

    def begin(
        self, claimant: object, left_out: Collection[Batch] = (), keys: frozenset[str] = frozenset()
    ) -> int:
        """Returns the id from which the next mark or selection has to look.

        Args:
            claimant: The leader id that marks, or the fence that selects; a new one has passed nothing yet.
            left_out: The batches whose rows the selection leaves out.
            keys: The keys whose rows it leaves out in addition to parked keys.
        """
        now = self._clock()
        if claimant != self._claimant:
            self._claimant = claimant
            self._start = FIRST
            self._behind = ()
        if not self._keys_behind <= keys:
            self.released()
        for batch in self._behind:
            if batch not in left_out:
                self._start = min(self._start, batch.runs[0][0])
        start = FIRST if now >= self._head_due else self._start
        self._began = (start, now, keys)
        return start

    def marked(self, found: int, span: tuple[int, int] | None, behind: Sequence[Batch] = ()) -> bool:
        """Records the result of the mark or selection that :meth:`begin` was called for.

        Args:
            found: How many rows it found; rows of keys that it leaves out are not among them.
            span: The lowest and the highest id that it took; ``None`` when none was there to find, or when
                all had been deleted by the time it came to them.
            behind: The batches that may have rows left where it looked: its own, and those pending.

        Returns:
            Whether a row was found below the start, where none can be if ids come from the sequence, in the
            transaction that inserts them.
        """
        self._behind = tuple(behind)  # the caller may change its list
        start, began, self._keys_behind = self._began
        self._unlisted += found
        if start == FIRST:
            now = self._clock()
            self._head_due = now + max(HEAD_INTERVAL, HEAD_SHARE * (now - began))
        if amiss := bool(span and span[0] < self._start):
            self._start = self._horizon = self._candidate = FIRST
            self._holders = frozenset()
        elif span:
            # Rows up to the highest are marked, or their keys are left out, or they were deleted meanwhile by
            # whoever had marked them before.
            self._start = max(self._start, min(span[1] + 1, self._horizon))
        elif not found:
            self._start = max(self._start, self._horizon)
        return amiss

    def released(self) -> None:
        """Records that rows behind the start can be marked.

        Called before the mark that looks for them, or between its end and ``marked`` if it read from the
        head by itself.
        """
        self._start = FIRST

    def finished(self, batches: Collection[Batch]) -> None:
        """Records that batches were deleted without a selection."""
        self._behind = tuple(batch for batch in self._behind if batch not in batches)

    def due(self) -> bool:
        """Returns whether it is time for another listing."""
        return self._unlisted >= LISTING_RECORDS or self._clock() >= self._listing_due

    def floor(self) -> int:
        """Returns the id from which a listing has to look for the newest."""
        return max(self._start, self._candidate)

    def listed(self, newest: int | None, holders: Collection[str], *, prepared: bool) -> None:
        """Records a listing.

        Args:
            newest: The newest visible id from ``floor`` on, or ``None``.
            holders: The transactions that, seen after that, held the sequence.
            prepared: Whether a prepared transaction is among them, which may have been another holder before.
        """
        self._listing_due = self._clock() + LISTING_INTERVAL
        self._unlisted = 0
        if self._candidate > self._horizon:
            if prepared or not self._holders.isdisjoint(holders):
                return
            self._horizon = self._candidate
        if newest is not None and newest >= self._horizon:
            self._candidate = min(newest, LAST - 1) + 1
            self._holders = frozenset(holders)
            if not holders:
                self._horizon = self._candidate
