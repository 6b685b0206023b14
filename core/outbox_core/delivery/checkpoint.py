"""The text of a checkpoint: which batches are in the log, or may be, and may still have rows in the outbox.

A checkpoint is ``3``, a space, and compressed JSON in base64: a list of batches, of which the first is the
one that its transaction publishes, or null. Each is a list of its newest time, and of its runs of ids, each
as the distance from the end of the one before and its length.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from outbox_api import MAX_CHECKPOINT, Batch

MAX_BATCH: Final = MAX_CHECKPOINT // 2
"""How many characters the checkpoint of a batch may have, so that it fits beside another or locked rows."""


class Checkpoint(NamedTuple):
    """What a checkpoint says."""

    published: Sequence[Batch] = ()
    """The batches whose transactions were known to be committed when it was written."""
    attempted: Batch | None = None
    """The batch that its own transaction publishes; ``None`` if it publishes none. The log alone tells what
    became of it."""


def encode(published: Sequence[Batch], attempted: Batch | None = None) -> str:
    """Returns a checkpoint as text, in ASCII; not empty even without batches."""
    written = [attempted and _numbers(attempted), *map(_numbers, published)]
    # Level 1 takes a sixth of the default's time, for a third more characters.
    packed = zlib.compress(json.dumps(written, separators=(",", ":")).encode(), 1)
    return f"1 {b64encode(packed).decode()}"


def decode(text: str) -> Checkpoint:
    """Returns what a checkpoint says."""
    version, _, rest = text.partition(" ")
    if version != "1":
        raise ValueError(f"it has the version {version!r}")
    try:
        attempted, *published = json.loads(zlib.decompress(b64decode(rest, validate=True)))
        return Checkpoint([_batch(each) for each in published], attempted and _batch(attempted))
    except (zlib.error, TypeError, ValueError) as error:
        raise ValueError(f"{rest!r} is no list of batches") from error


def fitting(ids: Sequence[int], newest: str) -> tuple[Batch, bool]:
    """Makes a batch of as many of the first ids, which ascend, as have a place in a checkpoint.

    Returns also whether one of twice as many rows is likely to have a place, too.
    """
    batch = Batch.of(ids, newest)
    while len(batch.runs) > 1:
        length = len(encode([batch]))
        if length <= MAX_BATCH:
            return batch, length <= MAX_BATCH // 2
        ids = ids[: len(ids) // 2]
        batch = Batch.of(ids, newest)
    return batch, True


def shorter(one: Sequence[Batch], other: Sequence[Batch]) -> Sequence[Batch]:
    """Returns those batches whose checkpoint has fewer characters."""
    return min(one, other, key=lambda batches: len(encode(batches)))


def _numbers(batch: Batch) -> list[str | int]:
    return [batch.newest, *_distances(batch)]


def _batch(written: list[Any]) -> Batch:
    newest, *numbers = written
    return Batch(tuple(_runs(numbers)), newest)


def _distances(batch: Batch) -> Iterator[int]:
    end = 0
    for first, last in batch.runs:
        yield first - end
        yield last - first
        end = last


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    end = 0
    for distance, length in zip(numbers[::2], numbers[1::2], strict=True):
        first = end + distance
        end = first + length
        yield first, end
