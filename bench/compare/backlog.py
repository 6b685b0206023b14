"""Backlogs of an outbox: rows that are written at once, and the wait until they are delivered."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.compare.candidates import Subject
from bench.compare.servers import Place, found

POLL = 0.02
"""Seconds between two looks at what is left."""
LARGEST = 400_000_000
"""Bytes of values in one backlog, at most."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rows of a backlog look like.

    Attributes:
        keys: ``many`` (1,000, evenly), ``one``, or ``zipf`` (1,000; the n-th 1/n as often as the first).
        size: Characters of a value.
        text: ``dots`` compress to almost nothing, ``hex`` hardly at all.
    """

    keys: str = "many"
    size: int = 100
    text: str = "dots"

    def __str__(self) -> str:
        keys = {"many": "1,000 keys", "one": "one key", "zipf": "Zipf"}[self.keys]
        size = f"{self.size} B" if self.size < 1000 else f"{self.size / 1000:g} kB"  # noqa: PLR2004 - a kB
        return f"{keys}, {size}" + (", hex" if self.text == "hex" else "")

    def rows(self, wanted: int) -> int:
        """Returns how many rows of this size make a backlog that is not too large."""
        return min(wanted, LARGEST // self.size)

    @property
    def key(self) -> str:
        """An SQL expression of the row number ``g``."""
        return {
            "many": "concat('key-', mod(g * 7919, 1000))",
            "one": "'key-0'",
            # Squares in a prime field, which look random.
            "zipf": "concat('key-', floor(power(1001, mod(g * g * 48271, 2147483647) / 2147483647e0)))",
        }[self.keys]

    @property
    def value(self) -> str:
        """An SQL expression of the row number ``g``; ``hex`` is PostgreSQL's."""
        if self.text == "dots":
            return f"lpad(concat(g), {self.size}, '.')"
        digests = f"generate_series(1, {self.size // 32 + 1}) AS i"
        return f"(SELECT left(g || '.' || string_agg(md5(g || '.' || i), ''), {self.size}) FROM {digests})"


def fill(place: Place, shape: Shape, rows: int, *, tidy: bool = True) -> int:
    """Writes a backlog in one transaction, so that it appears at once; returns the last row's id.

    Args:
        place: Where.
        shape: What the rows look like.
        rows: How many.
        tidy: Whether to tidy up before that, so that measurements do not depend on each other.
    """
    database = place.servers.database
    statement = f"""
        INSERT INTO outbox
            (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
        SELECT current_timestamp(6), '{place.topic}', {shape.key}, {shape.value}, {database.headers}
        FROM {database.numbers.format(rows)} ORDER BY g
    """
    with place.connect() as connection, connection.cursor() as cursor:
        for each in (*(database.tidying if tidy else ()), "BEGIN", statement, *database.inserted):
            cursor.execute(each)
        [last] = found(connection, "SELECT max(id) FROM outbox")
        cursor.execute("COMMIT")
    return int(last)


class Backlog:
    """A backlog that a candidate drains.

    Args:
        place: The candidate's place.
        subject: The running candidate.
        shape: What the rows look like.
        rows: How many rows.
        tidy: As in :func:`fill`.

    Attributes:
        left: The rows that are not delivered, as of the last call.
    """

    def __init__(self, place: Place, subject: Subject, shape: Shape, rows: int, *, tidy: bool = True) -> None:
        self._place = place
        self._subject = subject
        self._shape = shape
        self._rows = rows
        self._tidy = tidy
        self._before = self._first = self._last = 0
        self._connection = place.connect()
        self.left = 0

    def close(self) -> None:
        """Closes the connection that looks at what is left."""
        self._connection.close()

    def fill(self) -> None:
        """Writes all rows, unless some of the last time are left."""
        if not self.left:
            self._before = 0 if self._subject.empties else self._place.servers.written(self._place.topic)
            self._last = fill(self._place, self._shape, self._rows, tidy=self._tidy)
            self._first = self._last - self._rows + 1
            self.left = self._rows

    def drain(self, patience: float, portion: int | None = None) -> None:
        """Waits until nothing is left, ``patience`` seconds at most.

        Args:
            patience: Seconds.
            portion: Waits only until about so many of the rows are delivered.

        Raises:
            CandidateError: The candidate ended.
        """
        until = time.monotonic() + patience
        while not self._done(portion) and time.monotonic() < until:
            self._subject.check()
            time.sleep(POLL)

    def delivered(self) -> int:
        """Counts what was delivered since the last call; may take long if something is left."""
        before, self.left = self.left, 0 if self._done(None) else self._count()
        return before - self.left

    def _done(self, portion: int | None) -> bool:
        rows = portion or self._rows
        if self._subject.empties or self._subject.housekeeping:
            # Looks at one row first, since a search for any row reads all dead ones.
            if self._there("id = %s", self._first + rows - 1):
                return False
            if not portion and self._there("id BETWEEN %s AND %s", self._first, self._last):
                return False
        return self._subject.empties or self._written() >= rows

    def _there(self, condition: str, *values: int) -> bool:
        return found(self._connection, f"SELECT 1 FROM outbox WHERE {condition} LIMIT 1", *values) is not None

    def _written(self) -> int:
        return self._place.servers.written(self._place.topic) - self._before

    def _count(self) -> int:
        if not self._subject.empties:
            return max(0, self._rows - self._written())
        counted = "SELECT count(*) FROM outbox WHERE id BETWEEN %s AND %s"
        return int(found(self._connection, counted, self._first, self._last)[0])
