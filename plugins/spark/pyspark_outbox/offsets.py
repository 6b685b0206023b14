"""The offsets of a stream: what Spark's offset log says of an outbox; without PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from outbox_api import OutboxError
from outbox_core.delivery.checkpoint import Checkpoint, decode


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of one batch of a stream, and all that is to be known to read the batch again.

    Attributes:
        outbox: The identity of the outbox; empty before the first batch.
        query: Random digits of the stream, the same as long as its checkpoint exists; empty likewise.
        batch: The number of the batch, from 1; 0 before the first.
        rows: The text of a checkpoint (:mod:`outbox_core.delivery.checkpoint`): the batch, and earlier rows
            that were not to be deleted yet, as others had locked them.
    """

    outbox: str = ""
    query: str = ""
    batch: int = 0
    rows: str = ""

    @classmethod
    def of(cls, written: Mapping[str, object]) -> Offset:
        """Reads what :meth:`written` has made.

        Raises:
            OutboxError: It is no offset of an outbox.
        """
        try:
            offset = cls(**written)  # type: ignore[arg-type]  # compared below
            _ = offset.checkpoint, offset.batch + 1
        except (TypeError, ValueError, AttributeError) as error:
            raise OutboxError(
                f"the checkpoint of the query has an offset that this version cannot read ({error}); was it "
                "written by another source, or by a later version?"
            ) from error
        return offset

    def written(self) -> dict[str, object]:
        """Returns the offset as Spark's offset log holds it."""
        return asdict(self)

    @property
    def checkpoint(self) -> Checkpoint:
        """The rows of the batch, and those of earlier ones."""
        return decode(self.rows) if self.rows else Checkpoint()
