"""Deliberate bugs of Spark's source: each breaks a rule of how a query claims batches, or reads them again.

They mutate ``pyspark_outbox.claim`` and ``pyspark_outbox.parts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from outbox_api import UNBOUNDED, Advanced, Batch, LeadershipLost, MarkedRecord, OutboxTable, Poison
from outbox_core.delivery.checkpoint import encode
from pyspark_outbox import claim, parts
from pyspark_outbox.claim import Claim
from pyspark_outbox.offsets import Offset
from pyspark_outbox.parts import INDEX_BITS, Positioned

from .mutant import Mutant, mutant, under
from .scenario import Mode

# mypy: disable-error-code="method-assign"
_next, _parts, _close, _advance = Claim.next, Claim.parts, Claim.close, Claim._advance
_parts_of, _take_over = parts.parts_of, Claim._take_over
_deliverable = claim._deliverable
Parts = list[list[Positioned]]

# --- what is deleted, and when ---------------------------------------------------------------------------


def _purge(self: Any, offset: Offset) -> None:
    batch, lead = offset.checkpoint.attempted, self._leadership
    if batch and lead:
        self._ask(lambda table: table.advance(lead.fence, [batch], [], 0, UNBOUNDED))


def _purging_parts(self: Any, start: Offset, end: Offset) -> Parts:
    parts = _parts(self, start, end)
    _purge(self, end)
    return parts


def _purging_close(self: Any) -> None:
    if self._selected is not None:
        _purge(self, self._selected)
    _close(self)


def _forgetful_advance(self: Any, *arguments: Any) -> Advanced:
    advanced = _advance(self, *arguments)
    self._left = ()
    return advanced


def _trusting_advance(self: Any, max_rows: int, max_bytes: int) -> Advanced:
    advanced: Advanced = self._ask(
        lambda table: table.advance(self._fence, self._left, [], max_rows, max_bytes)
    )
    self._left = advanced.locked
    return advanced


def _next_of_last(self: Any, start: Offset, *arguments: Any) -> Offset:
    """Takes from the offset only the last batch."""
    if start != self._committed:
        self._lead(start)
        attempted = start.checkpoint.attempted
        self._committed, self._left = start, [attempted] if attempted else []
    return _next(self, start, *arguments)


# --- who leads -------------------------------------------------------------------------------------------


def _sharing(self: Any, table: OutboxTable, offset: Offset) -> Any:
    """Takes the fence that there is, and does not raise it."""
    held = table.lane_statuses()
    if not held or held[0].fence.lanes != 1:
        return _take_over(self, table, offset)
    self._refuse_others(table, offset)
    return claim._Leadership(held[0].fence, table.identity(), offset.query or self._holder)


def _hasty(self: Any, table: OutboxTable, offset: Offset) -> Any:
    """Looks at the notes only before it raises the fence."""
    self._refuse_others(table, offset)
    fence = table.enter(0, 1, table.bump(1, self._holder))
    return claim._Leadership(fence, table.identity(), offset.query or self._holder)


def _clinging(method: Any) -> Any:
    """Raises the fence anew when it is another's, without a look at the notes."""

    def again(self: Any, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except LeadershipLost:
            if self._leadership is None:
                raise
            fence = self._ask(lambda table: table.enter(0, 1, table.bump(1, self._holder)))
            self._leadership = replace(self._leadership, fence=fence)
            return method(self, *arguments)

    return again


# --- the note --------------------------------------------------------------------------------------------


def _unnoted_parts(self: Any, start: Offset, end: Offset) -> Parts:
    self._lead(end)
    self._noted = end.batch
    return _parts(self, start, end)


def _settling_next(self: Any, start: Offset, *arguments: Any) -> Offset:
    """Takes the note away once nothing waits and all that was read is deleted."""
    end = _next(self, start, *arguments)
    if end == start and self._noted and not self._left:
        self._ask(lambda table: table.set_transactional(self._lead(start).fence, None))
        self._noted = 0
    return end


# --- what is selected, divided and read ------------------------------------------------------------------


def _scattered(batch: int, ids: Sequence[int], records: Iterable[MarkedRecord], number: int | None) -> Parts:
    whole = [row for part in _parts_of(batch, ids, records, 1) for row in part]
    parts = number or 1
    return [part for first in range(parts) if (part := whole[first::parts])]


def _found_only(batch: int, ids: Sequence[int], records: Iterable[MarkedRecord], number: int | None) -> Parts:
    found = {record.id: record for record in records}
    return _parts_of(batch, [row for row in ids if row in found], found.values(), number)


def _placed_in_part(batch: int, *arguments: Any) -> Parts:
    return [
        [row._replace(position=batch << INDEX_BITS | place) for place, row in enumerate(part)]
        for part in _parts_of(batch, *arguments)
    ]


def _position_is_id(*arguments: Any) -> Parts:
    return [[row._replace(position=row.record.id) for row in part] for part in _parts_of(*arguments)]


def _tails_too(records: Sequence[MarkedRecord]) -> tuple[list[MarkedRecord], list[Poison]]:
    """Goes on with a key behind a row that can be no message."""
    return [record for record in records if not record.fault], _deliverable(records)[1]


def _park_all(records: Sequence[MarkedRecord]) -> tuple[list[MarkedRecord], list[Poison]]:
    """Parks a key at once, while earlier rows of it are selected."""
    faults = [Poison(record.id, record.fault, 1) for record in records if record.fault]
    return _deliverable(records)[0], faults


def _later_as_told(self: Any, records: Sequence[MarkedRecord], _: Batch) -> bool:
    """Takes what some of the rows tell for what all would."""
    told = [record.created for record in records if record.created is not None]
    return self._until is not None and all(created > self._until for created in told)


def breaks_queries(name: str, says: str, invariants: str, faults: str, **parts: Any) -> Mutant:
    """Returns a mutant of Spark's source: what is patched in the module of claims, and the scenario."""
    patches = {f"pyspark_outbox.{target}": value for target, value in parts.pop("patches").items()}
    each = mutant(name, says, invariants, 40, Mode.SPARK, patches=patches)
    return under(faults, each, **parts)


SPARK_MUTANTS: Sequence[Mutant] = (
    breaks_queries("planned-purged", "A query deletes a batch that is only in the offset log.", "I1",
        "slow database", patches={"claim.Claim.parts": _purging_parts}),
    breaks_queries("stop-purges", "A query that ends deletes the batch that it has selected last.", "I1 I8",
        "lossy network", patches={"claim.Claim.close": _purging_close}),
    breaks_queries("query-locks-forgotten", "A query takes rows that others had locked for deleted.",
        "I6 checkpoint", "slow database", touched=0.5, patches={"claim.Claim._advance": _forgetful_advance}),
    breaks_queries("query-locks-unnamed", "An offset does not name rows that others have locked.",
        "I6 checkpoint", "query crashes", touched=0.5,
        patches={"claim.encode": lambda _, batch: encode([], batch)}),
    breaks_queries("query-locks-unread", "A query that starts deletes the last batch only.", "I6 checkpoint",
        "query crashes", touched=0.5, patches={"claim.Claim.next": _next_of_last}),
    breaks_queries("query-kept", "A query does not look for rows that it has deleted in vain.", "kept",
        "slow database", kept=0.1, patches={"claim.Claim._advance": _trusting_advance}),
    breaks_queries("shared-fence", "A query selects under the fence that there is.", "I2 I6 checkpoint",
        "second queries", slow=0.1, patches={"claim.Claim._take_over": _sharing}),
    breaks_queries("one-look", "A query looks at the notes only before it raises the fence.", "I6 checkpoint",
        "second queries, query crashes", slow=0.1, patches={"claim.Claim._take_over": _hasty}),
    breaks_queries("clinging-query", "A query that was fenced raises the fence again.", "I2 I6 checkpoint",
        "second queries", patches={
            "claim.Claim.next": _clinging(_next), "claim.Claim.parts": _clinging(_parts)}),
    breaks_queries("query-unnoted", "A query does not note which batch it reads.", "I6 checkpoint refused",
        "second queries", patches={"claim.Claim.parts": _unnoted_parts}),
    breaks_queries("query-settles", "A query ends its note once nothing waits.", "replay I1",
        "older checkpoints", transactions_per_second=5.0, patches={"claim.Claim.next": _settling_next}),
    breaks_queries("scattered-keys", "A key's rows are in several parts.", "I2 position", "slow database",
        patches={"claim.parts_of": _scattered}),
    breaks_queries("missing-skipped", "A replay leaves out rows that are gone.", "replay", "query crashes",
        touched=0.5, withdrawn=0.5, patches={"claim.parts_of": _found_only}),
    breaks_queries("place-in-part", "Positions count the rows of a part.", "replay position",
        "slow database", patches={"claim.parts_of": _placed_in_part}),
    breaks_queries("position-is-id", "The position is the row's id.", "position", "slow database",
        late_commits=0.4, patches={"claim.parts_of": _position_is_id}),
    breaks_queries("query-tails", "A query goes on with a key behind a row that makes no message.",
        "I2 parked", "slow database", refused_for_good=0.05, patches={"claim._deliverable": _tails_too}),
    breaks_queries("query-parked-before", "A query parks a key for a record that is not its first.",
        "parked", "slow database", refused_for_good=0.05, patches={"claim._deliverable": _park_all}),
    breaks_queries("later-as-told", "A query ends by when some of the rows were written.", "available",
        "query crashes", late_commits=0.4, transactions_per_second=100.0,
        patches={"claim.Claim._is_later": _later_as_told}),
)  # fmt: skip
