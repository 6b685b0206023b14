"""What tells whether two divisions of rows into tasks have the same rows; without PySpark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Self, cast

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


class Tally:
    """Counts rows as they go by, and hashes what each becomes in Kafka; keys and values are bytes."""

    def __init__(self) -> None:
        self._count = self._digest = 0

    def add(self, records: Sequence[MarkedRecord]) -> None:
        """Counts rows."""
        total, rows = 0, cast("Sequence[tuple[Any, ...]]", records)
        for _, topic, key, value, headers, partition, timestamp, _, _ in rows:  # one loop, as rows are many
            content = b"%b %d %d %b%b" % (
                topic.encode(),
                -1 if key is None else len(key),
                -1 if value is None else len(value),
                key or b"",
                value or b"",
            )
            if headers or partition is not None or timestamp is not None:
                content += f"{headers}{partition} {timestamp}".encode()
            total += int.from_bytes(blake2b(content, digest_size=_BYTES).digest(), "big")
        self._count += len(records)
        self._digest += total

    @property
    def sums(self) -> Sums:
        """What has gone by."""
        return Sums(self._count, self._digest % _MODULUS)
