"""The text of a checkpoint: which batches are in the log and may still have rows in the outbox.

A checkpoint is ``2``, a space, and compressed JSON in base64: for each batch its newest time, and its runs
of ids, each as the distance from the end of the one before and its length. Earlier versions wrote ``1``, a
space, and for each batch the leader id that its rows carried, and its first and last id.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from outbox_sdk import MAX_CHECKPOINT, Batch

MAX_BATCH: Final = MAX_CHECKPOINT // 2
"""How many characters the checkpoint of a batch may have, so that it fits beside another or locked rows."""

_FORMER_BATCH = re.compile(r"([0-9a-f]{32}):(-?[0-9]+):(-?[0-9]+)")


class FormerBatch(NamedTuple):
    """A batch of an earlier version: the rows from ``first`` to ``last`` that carry ``leader_id``."""

    leader_id: UUID
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says is in the log.

    Attributes:
        batches: Batches by their ids.
        former: Batches of an earlier version.
    """

    batches: list[Batch] = field(default_factory=list)
    former: list[FormerBatch] = field(default_factory=list)


def encode(batches: Sequence[Batch]) -> str:
    """Returns the checkpoint of some batches, in ASCII; not empty even without batches."""
    written = [[batch.newest, *_distances(batch)] for batch in batches]
    # Level 1 takes a sixth of the default's time, for a third more characters.
    packed = zlib.compress(json.dumps(written, separators=(",", ":")).encode(), 1)
    return f"2 {b64encode(packed).decode()}"


def decode(text: str) -> Checkpoint:
    """Returns what a checkpoint of this or an earlier version says.

    Raises:
        ValueError: It is no checkpoint.
    """
    version, _, rest = text.partition(" ")
    if version == "1":
        return Checkpoint(former=[_former(part) for part in rest.split(",")] if rest else [])
    if version != "2":
        raise ValueError(f"it has the version {version!r}")
    try:
        written = json.loads(zlib.decompress(b64decode(rest, validate=True)))
        return Checkpoint([Batch(tuple(_runs(numbers)), newest) for newest, *numbers in written])
    except (zlib.error, TypeError, ValueError) as error:
        raise ValueError(f"{rest!r} is no list of batches") from error


def fitting(ids: Sequence[int], newest: str) -> tuple[Batch, bool]:
    """Makes a batch of as many of the first ids as have a place in a checkpoint.

    Args:
        ids: Rows' ids, in ascending order.
        newest: As in :class:`outbox_sdk.Batch`.

    Returns:
        The batch, and whether one of twice as many rows is likely to have a place, too.
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


def _former(part: str) -> FormerBatch:
    match = _FORMER_BATCH.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} names no batch")
    return FormerBatch(UUID(match[1]), int(match[2]), int(match[3]))
