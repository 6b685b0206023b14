"""A connection that notices when another file takes the place of the one that it has opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.request import url2pathname


class Replaced(sqlite3.OperationalError):
    """The file of a connection has been replaced or removed."""


class FileConnection(sqlite3.Connection):
    """A connection to a database's file, by its URI.

    SQLite goes on with a file that has been removed, for example when a backup or a compacted copy was moved
    to its place: changes would be lost, and new rows never seen. Each new cursor looks at the file's name.
    """

    def __init__(self, database: str, *arguments: Any, **settings: Any) -> None:
        self._path = url2pathname(database.removeprefix("file://").partition("?")[0])
        self._file = _identity(self._path)  # before it is opened, so that no replacement is missed
        super().__init__(database, *arguments, **settings)

    def cursor(self, *arguments: Any, **settings: Any) -> Any:
        """Returns a cursor.

        Raises:
            Replaced: Its changes would go to a file that has no name any more.
        """
        if _identity(self._path) != self._file:
            raise Replaced("the file was replaced or removed; the next connection opens the present one")
        return super().cursor(*arguments, **settings)


def _identity(path: str) -> tuple[int, int] | None:
    """Returns what tells a file from others; ``None`` if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
