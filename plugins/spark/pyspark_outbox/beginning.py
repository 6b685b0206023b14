"""The kept records with which a stream begins, before what waits; without PySpark.

Nobody but the leader purges. So once the fence is raised the kept records are the same for every batch, but
for what expires or is erased, and none of a key is behind one that waits.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from outbox_api import Batch, MarkedRecord, OutboxError
from outbox_api.portable.kept import PortableKept
from outbox_api.seams.kept import Chosen, KeptRecord
from outbox_core.delivery.checkpoint import encode, fitting

from pyspark_outbox.claim import Claim
from pyspark_outbox.connection import Connection
from pyspark_outbox.offsets import Offset
from pyspark_outbox.options import Of, SourceOptions
from pyspark_outbox.parts import Positioned, divided

log = logging.getLogger("outbox.spark")

_DELIVERED = Chosen(superseded=False)


class Beginning:
    """A stream that may begin with kept records, and goes on with what its claim selects.

    Whether it does, the options say until it has a batch, and then its offsets. Used by one thread.

    Attributes:
        claim: As given.
    """

    def __init__(self, claim: Claim, archive: Connection[PortableKept], options: SourceOptions) -> None:
        self.claim = claim
        self._archive = archive
        self._options = options
        self._through: int | None = None
        self._selected: tuple[Offset, Mapping[int, MarkedRecord]] | None = None

    def next(self, start: Offset, max_rows: int, max_bytes: int | None = None) -> Offset:
        """Returns the end of the next batch: of kept records, or as :meth:`.Claim.next` if none is left.

        Raises:
            OutboxError: Kept records lack their value, or are gone, or the outbox is not to be read.
        """
        if start.kept or (not start.batch and self._options.starting is Of.KEPT):
            bound = min(self._options.max_bytes, max_bytes or self._options.max_bytes)
            if (end := self._next(start, max_rows, bound)) is not None:
                return end
        return self.claim.next(start, max_rows, max_bytes)

    def parts(self, start: Offset, end: Offset) -> list[list[Positioned]]:
        """Divides a batch that Spark has logged, as :meth:`.Claim.parts` does."""
        if start == end or (batch := end.positions) is None:
            return self.claim.parts(start, end)
        self.claim.following(end)
        selected, self._selected = self._selected, None
        found = selected[1] if selected and selected[0] == end else self._again(end, batch)
        parts = divided(end.batch, batch.ids(), found, self._options.partitions)
        self.claim.note(end)
        return parts

    def close(self) -> None:
        """Disconnects. Idempotent."""
        self._archive.close()
        self.claim.close()

    def _next(self, start: Offset, max_rows: int, max_bytes: int) -> Offset | None:
        self._selected = None
        last = start.positions
        after = last.runs[-1][1] if last else 0
        through = self._bound(start, after)
        if last and after < start.through:
            self._require_reach(last, start.through)
        if after >= through or not (found := self._page(after, through, max_rows, max_bytes)):
            return None
        batch, _ = fitting([each.position for each in found], "")
        end = replace(self.claim.following(start), kept=encode([], batch), through=through)
        self._selected = end, {each.position: each.record for each in found}
        return end

    def _bound(self, start: Offset, after: int) -> int:
        """Returns the last position before what waits; the first time, raises the fence."""
        if self._through is None:
            before = self._archive.ask(lambda kept: kept.count(_DELIVERED, after))
            _require_values(before.records, before.without_value)  # before anybody is fenced
            self.claim.following(start)
            newest = max(after, before.last)
            self._through = max(newest, self._archive.ask(lambda kept: kept.count(_DELIVERED, newest)).last)
        return self._through

    def _page(self, after: int, through: int, max_rows: int, max_bytes: int) -> list[KeptRecord]:
        chosen = replace(_DELIVERED, through=through)

        def page(kept: PortableKept) -> list[KeptRecord]:
            with kept.session.transaction("read kept records", reads=True):
                reached = kept.reach(chosen, after, max_rows, max_bytes)
                return kept.page(replace(chosen, through=reached), after, max_rows) if reached else []

        found = self._archive.ask(page)
        _require_values(len(found), sum(not each.has_value for each in found))
        return found

    def _again(self, end: Offset, batch: Batch) -> Mapping[int, MarkedRecord]:
        """Reads the records of a batch that a former start has planned."""
        chosen, after = replace(_DELIVERED, through=batch.runs[-1][1]), batch.runs[0][0] - 1
        kept = self._archive.ask(lambda kept: kept.find(chosen, after, batch.rows))
        found = {each.position: each.record for each in kept}
        if missing := set(batch.ids()).difference(found):
            self._lost(
                f"{len(missing)} of {batch.rows} kept records of batch {end.batch} are gone: they were "
                "erased, or have expired"
            )
        return found

    def _require_reach(self, last: Batch, through: int) -> None:
        """Requires that a record of the last batch is still kept: what has expired ends with the newest."""
        (first, _), (_, newest) = last.runs[0], last.runs[-1]

        def is_there(kept: PortableKept) -> bool:
            with kept.session.transaction("read kept records", reads=True):
                return bool(kept.positions(Chosen(through=newest), first - 1, 1))

        if not self._archive.ask(is_there):
            self._lost(
                "none of the kept records of the last batch is kept any more: they have expired, and some "
                f"of those up to position {through}, which were to be read, may have expired with them"
            )

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise OutboxError(f"{what}; with failOnDataLoss=false the query goes on with what is left")
        log.warning("%s: %s", self._options.settings.title, what)


def _require_values(records: int, without: int) -> None:
    if without:
        raise OutboxError(
            f"of {records:,} kept records {without:,} were kept without their value ('keep.without'), and "
            "would be read as tombstones; leave out 'startingOffsets', and read them as a batch (of=kept)"
        )
