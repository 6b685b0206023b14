"""What tells whether two divisions of rows into tasks have the same rows; without PySpark."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Self

from outbox_api import MarkedRecord

_BYTES: Final = 16
_MODULUS: Final = 1 << 8 * _BYTES


@dataclass(frozen=True, slots=True)
class Sums:
    """How many rows there are, and the sum of their hashes: their order and division do not matter."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: Sums) -> Sums:
        """Returns the sums of both."""
        return Sums(self.count + other.count, (self.digest + other.digest) % _MODULUS)

    def written(self) -> list[int | str]:
        """Returns what JSON has of it."""
        return [self.count, f"{self.digest:x}"]

    @classmethod
    def of(cls, written: list[int | str]) -> Self:
        """Reads it."""
        count, digest = written
        return cls(int(count), int(str(digest), 16))


NO_ROWS: Final = Sums()


def hash_of(record: MarkedRecord) -> int:
    """Returns the hash of what a row becomes in Kafka; its key and value are bytes."""
    row: tuple[Any, ...] = record
    _, topic, key, value, headers, partition, timestamp, _, _ = row
    plain = not headers and partition is None and timestamp is None
    rest = b"" if plain else f"{headers}{partition} {timestamp}".encode()
    sizes = -1 if key is None else len(key), -1 if value is None else len(value)
    content = b"%b %d %d %b%b%b" % (topic.encode(), *sizes, key or b"", value or b"", rest)
    return int.from_bytes(blake2b(content, digest_size=_BYTES).digest(), "big")


class Tally:
    """Counts rows as they go by."""

    def __init__(self) -> None:
        self._count = self._digest = 0

    def add(self, records: list[MarkedRecord]) -> None:
        """Counts rows."""
        self._count += len(records)
        self._digest += sum(map(hash_of, records))

    @property
    def sums(self) -> Sums:
        """What has gone by."""
        return Sums(self._count, self._digest % _MODULUS)
