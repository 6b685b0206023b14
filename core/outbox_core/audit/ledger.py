"""The application's side of an audit: a file of the records that it knows to be committed."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from outbox_sdk import OutboxError


class Ledger:
    """Appends committed records to a file of JSON lines, ``["key", sequence]`` each; safe for threads.

    A context manager that closes the file. Write a record only once its commit has returned: the audit takes
    what is in the ledger for committed and everything else for foreign.

    Args:
        path: The file; created if it does not exist, continued if it does.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = Lock()

    def write(self, records: Iterable[tuple[str, int]]) -> None:
        """Appends records that were committed together."""
        lines = "".join(f"{json.dumps([key, sequence], ensure_ascii=False)}\n" for key, sequence in records)
        with self._lock:
            self._file.write(lines)

    def close(self) -> None:
        """Writes out what is buffered and closes the file. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_ledger(path: Path) -> Iterator[tuple[str, int]]:
    """Yields key and sequence of each record of a ledger, in the order of the file.

    Raises:
        OutboxError: A line is not what a ledger holds; the message names it.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                key, sequence = json.loads(line)
            except (ValueError, TypeError) as error:
                raise OutboxError(f'{path}:{number}: expected a line like ["key", 7]') from error
            if not isinstance(key, str) or type(sequence) is not int:
                raise OutboxError(f'{path}:{number}: expected a line like ["key", 7]')
            yield key, sequence
