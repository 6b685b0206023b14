"""The ledger: a file of the records that an application knows to be committed."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import NamedTuple, Self

from outbox_api import OutboxError


class Entry(NamedTuple):
    """A committed record in a ledger.

    Attributes:
        key: Its key.
        sequence: Its number, which rises with each record of the key.
        topic: Its topic; ``None`` if the ledger does not name it.
    """

    key: str
    sequence: int
    topic: str | None = None


class Ledger:
    """Appends committed records to a file of JSON lines; safe for threads; a context manager.

    A line is ``["key", sequence]``, or ``["key", sequence, "topic"]`` if there are several topics. Write a
    record only after its commit has returned: the audit treats records in the ledger as committed and all
    others as foreign.

    Args:
        path: The file; created if it does not exist, appended to if it does.

    Raises:
        OutboxError: The file cannot be opened; of each method: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        with self._failing():
            self._file = path.open("a", encoding="utf-8")

    def write(self, records: Iterable[tuple[str, int] | tuple[str, int, str | None]]) -> None:
        """Appends records that were committed together: key, sequence and, optionally, topic of each."""
        lines = "".join(f"{json.dumps(_fields(Entry(*record)), ensure_ascii=False)}\n" for record in records)
        with self._lock, self._failing():
            self._file.write(lines)

    def close(self) -> None:
        """Flushes and closes the file. Idempotent."""
        with self._failing():
            self._file.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutboxError(f"cannot write ledger {self._path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_ledger(path: Path) -> Iterator[tuple[str, int]]:
    """Yields key and sequence of each record of a ledger of one topic; see :func:`read_entries`."""
    return ((entry.key, entry.sequence) for entry in read_entries(path))


def read_entries(path: Path) -> Iterator[Entry]:
    """Yields the records of a ledger, in the order of the file.

    Raises:
        OutboxError: The file cannot be read, or a line is not valid; the message names the line.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise OutboxError(f"cannot read ledger {path}: {error.strerror}") from error
    with file:
        for number, line in enumerate(file, 1):
            try:
                yield parse_entry(json.loads(line))
            except (ValueError, TypeError) as error:
                raise OutboxError(
                    f'{path}:{number}: expected a line like ["key", 7] or ["key", 7, "topic"]'
                ) from error


def _fields(entry: Entry) -> list[str | int | None]:
    return [*entry] if entry.topic is not None else [entry.key, entry.sequence]


def parse_entry(written: object) -> Entry:
    """Returns what a line of a ledger says."""
    match written:
        case [str(key), int(sequence), *rest] if type(sequence) is int:
            match rest:
                case []:
                    return Entry(key, sequence)
                case [str(topic)]:
                    return Entry(key, sequence, topic)
    raise ValueError(written)
