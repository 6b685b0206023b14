"""Finds torn transactions in a broker's files: committed in some partitions, aborted in others.

No consumer sees which transaction a message belongs to. A broker's files have the producer of each batch of
records, and the marker that ends the transaction in the partition. One producer's transactions follow one
another, each after the answer that the one before is committed. So records of one producer that were created
within a few milliseconds belong to one transaction, unless a marker of their partition is between them.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

GAP_MS = 3
"""A commit takes longer than this, and the creation of two records of one transaction does not."""
_HEADER = struct.Struct(">qiibihiqqqhii")
"""A batch's base offset, length, leader epoch, magic, checksum, attributes, last offset, first and last time,
producer, its epoch, sequence and number of records; they are followed by the records."""
_LENGTH_ENDS = 12
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_COMMIT, _ABORT = 1, 0
_MARKER_KEY = 5
"""Bytes of a marker's record before its key, of which each is small: length, attributes, differences of time
and of offset, length of the key."""


class Part(NamedTuple):
    """What one transaction has written into one partition.

    Attributes:
        producer: Producer id and epoch.
        partition: The partition's name.
        first_ms: When its first record was created, in milliseconds since the epoch.
        last_ms: The same for the last one.
        committed: Whether it is committed, or aborted.
    """

    producer: tuple[int, int]
    partition: str
    first_ms: int
    last_ms: int
    committed: bool


def torn(data: Path, topic: str) -> list[list[Part]]:
    """Returns the parts of each torn transaction.

    Args:
        data: The data folder of a broker that has a copy of every partition.
        topic: The topic.
    """
    folders = [each for each in sorted(data.iterdir()) if re.fullmatch(rf"{re.escape(topic)}-\d+", each.name)]
    parts = chain.from_iterable(map(_parts, folders))
    return [each for each in _transactions(parts) if len({part.committed for part in each}) > 1]


def _transactions(parts: Iterator[Part]) -> Iterator[list[Part]]:
    by_producer: defaultdict[tuple[int, int], list[Part]] = defaultdict(list)
    for part in parts:
        by_producer[part.producer].append(part)
    for own in by_producer.values():
        own.sort(key=lambda part: part.first_ms)
        transaction: list[Part] = []
        for part in own:
            ended = transaction and part.first_ms > max(each.last_ms for each in transaction) + GAP_MS
            if ended or part.partition in {each.partition for each in transaction}:
                yield transaction
                transaction = []
            transaction.append(part)
        yield transaction


def _parts(folder: Path) -> Iterator[Part]:
    """Yields what transactions have written into the partition of this folder, once they have ended."""
    written: dict[int, Part] = {}
    for batch in chain.from_iterable(map(_batches, sorted(folder.glob("*.log")))):
        _, _, _, _, _, attributes, _, first, last, producer, epoch, _, _ = _HEADER.unpack_from(batch)
        if attributes & _CONTROL:
            if part := written.pop(producer, None):
                yield part._replace(committed=_kind(batch) == _COMMIT)
        elif attributes & _TRANSACTIONAL:
            new = Part((producer, epoch), folder.name, first, last, committed=False)
            old = written.get(producer, new)
            written[producer] = old._replace(last_ms=max(last, old.last_ms))


def _kind(marker: bytes) -> int:
    _version, kind = struct.unpack_from(">hh", marker, _HEADER.size + _MARKER_KEY)
    assert kind in (_COMMIT, _ABORT), f"{kind} is no kind of marker"
    return int(kind)


def _batches(file: Path) -> Iterator[bytes]:
    data, start = file.read_bytes(), 0
    while start + _HEADER.size <= len(data):
        end = start + _LENGTH_ENDS + int.from_bytes(data[start + 8 : start + _LENGTH_ENDS])
        if end == start + _LENGTH_ENDS or end > len(data):
            return  # the rest is not written yet
        yield data[start:end]
        start = end
