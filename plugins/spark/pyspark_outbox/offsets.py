"""The offsets of a stream: what Spark's offset log says of an outbox; without PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from outbox_api import Batch, OutboxError
from outbox_core.delivery.checkpoint import Checkpoint, decode


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of one batch of a stream, and all that is to be known to read the batch again.

    Attributes:
        outbox: The identity of the outbox; empty before the first batch.
        query: Random digits of the stream, the same as long as its checkpoint exists; empty likewise.
        batch: The number of the batch, from 1; 0 before the first.
        rows: The text of a checkpoint (:mod:`outbox_core.delivery.checkpoint`): the batch, and earlier rows
            that were not to be deleted yet, as others had locked them. Empty if the batch has kept records.
        kept: The text of a checkpoint with the positions of the batch's kept records; empty if it has rows
            that waited.
        through: The last position of a kept record that comes before what waits; 0 likewise.
    """

    outbox: str = ""
    query: str = ""
    batch: int = 0
    rows: str = ""
    kept: str = ""
    through: int = 0

    @classmethod
    def of(cls, written: Mapping[str, object]) -> Offset:
        """Reads what :meth:`written` has made.

        Raises:
            OutboxError: It is no offset of an outbox.
        """
        try:
            offset = cls(**written)  # type: ignore[arg-type]  # compared below
            _ = offset.checkpoint, offset.positions, offset.batch + 1, offset.through + 1
        except (TypeError, ValueError, AttributeError) as error:
            raise OutboxError(
                f"the checkpoint of the query has an offset that this version cannot read ({error}); was it "
                "written by another source, or by a later version?"
            ) from error
        return offset

    def written(self) -> dict[str, object]:
        """Returns the offset as Spark's offset log holds it."""
        known = asdict(self)
        return known if self.kept else {name: known[name] for name in known if name not in _KEPT}

    @property
    def checkpoint(self) -> Checkpoint:
        """The rows of the batch, and those of earlier ones."""
        return decode(self.rows) if self.rows else Checkpoint()

    @property
    def positions(self) -> Batch | None:
        """The positions of the batch's kept records; ``None`` if it has rows that waited."""
        return decode(self.kept).attempted if self.kept else None


_KEPT = ("kept", "through")
"""What earlier versions do not know."""
