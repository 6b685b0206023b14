"""Asks the server what :class:`outbox_postgres.settled.Settled` needs to know, and when it needs to."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from outbox_api import Batch, ColumnIs, DriverError, Origin

from outbox_postgres.layout import Layout
from outbox_postgres.parking_statements import UNKNOWN, restarted
from outbox_postgres.session import Session
from outbox_postgres.settled import FIRST, Settled
from outbox_postgres.sources import Source

log = logging.getLogger("outbox.postgres")


def excluding(keys: frozenset[str], topics: frozenset[str]) -> frozenset[str]:
    """Returns what a look leaves out as one set, see ``ScanStarts.next``; no key of the table has a NUL."""
    return keys | {f"\0{topic}" for topic in topics} if topics else keys


class ScanStarts:
    """From which id the next mark or selection of one connection looks.

    Attributes:
        settled: Computes it for the first source; ``None`` if the layout has no sequence, and every look
            begins at the head. Those of all other sources do: their ids are given out elsewhere, or they
            become eligible by their age.
        basis: What it rests on, as the last statement saw it; see ``predicates.basis``.
    """

    def __init__(self, session: Session, layout: Layout, source: Source) -> None:
        self.settled = Settled() if layout.sequence else None
        self.basis = UNKNOWN
        self._layout = layout
        self._session = session
        self._sequence = layout.sequence
        self._listing = source.listing(layout.oid)
        self._listed = source.parameters

    def next(
        self,
        claimant: object,
        left_out: Sequence[Batch] = (),
        keys: frozenset[str] = frozenset(),
        source: int = 0,
    ) -> int:
        """Returns the id; see :meth:`Settled.begin`."""
        if self.settled is None or source:
            return FIRST
        # A listing before the basis is known could be of ids before a restart.
        if self.basis != UNKNOWN and self.settled.due():
            parameters = (self.settled.floor(), self._sequence, *self._listed)
            [listed] = self._session.rows(self._listing, parameters, "read the newest id")
            newest, holders, prepared, sequence = listed
            if sequence != self._sequence:
                raise self._elsewhere()
            self.settled.listed(newest, holders, prepared=prepared)
        return self.settled.begin(claimant, left_out, keys)

    def found(
        self, number: int, span: tuple[int, int] | None, behind: Sequence[Batch] = (), source: int = 0
    ) -> None:
        """Records the result of a look; see :meth:`Settled.marked`."""
        if self.settled and not source and self.settled.marked(number, span, behind) and span:
            log.warning(
                "row %d of %s was found where marks had passed: its id was not taken from the sequence in "
                "the transaction that inserted it, so it may come behind later rows of its key; set "
                "skipSettled: false if applications choose ids",
                span[0],
                self._layout.outbox,
            )

    def finished(self, batches: Sequence[Batch]) -> None:
        """Records that batches were deleted; see :meth:`Settled.finished`."""
        if self.settled:
            self.settled.finished(batches)

    def rebased(self, basis: int) -> None:
        """Must be called when a statement has seen another basis, and before its result is recorded.

        Raises:
            DriverError: Ids begin anew. The caller may still hold rows of before that have the ids of new
                ones, so nothing may be taken over this connection any more.
        """
        if self.basis != UNKNOWN and restarted(self.basis, basis):
            raise self._elsewhere()
        self.basis = basis
        self.released()

    def released(self) -> None:
        """Must be called when rows are freed."""
        if self.settled:
            self.settled.released()

    def _elsewhere(self) -> DriverError:
        return DriverError(
            f"the ids of '{self._layout.outbox}' begin anew or come from elsewhere, as after TRUNCATE ... "
            "RESTART IDENTITY, or where another table or sequence has taken the place of the one before",
            retryable=True,
        )


def provable(layout: Layout, eligible: Sequence[ColumnIs], origin: Origin | None) -> bool:
    """Returns whether the proof of ``settled`` holds for the rows of the first source.

    It does for all rows of a table that no subscription writes, and for the rows of the own cluster: their
    ids come from the sequence of this database, whatever replication writes beside them. It does not for
    rows that become eligible by their age.
    """
    if not eligible:
        return not layout.replicated
    first = eligible[0]
    return (
        origin is not None
        and (first.column, first.value) == (origin.column, origin.own)
        and first.older_than <= 0
    )
