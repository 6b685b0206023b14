"""A small file system for the outbox's table, which a fault can fill."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from outbox_servers.services import PostgresServer
from psycopg import sql

from ..databases import Postgres  # noqa: TID252 - pytest gives tests no absolute name

MEGABYTES = 256
LEFT = 1 << 19
"""Bytes that stay free on a full disk, so that the last pages of the table are full of records."""

_REFUSE = """
CREATE OR REPLACE FUNCTION refuse_as_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE UPDATE ON outbox EXECUTE FUNCTION refuse_as_full();
"""
_LET = "DROP TRIGGER full_disk ON outbox"


class SmallDisk:
    """Puts the table on a tmpfs of its own if this process may mount one; a context manager.

    Without root, a trigger raises the error that PostgreSQL raises on a full disk. Enter the context before
    the server starts, so that it exits after the server has ended.

    Attributes:
        means: ``tmpfs`` or ``trigger``.
    """

    def __init__(self) -> None:
        self._root: Path | None = None
        self._last = Path()
        self._numbers = itertools.count(1)
        self.means = "trigger"

    def __enter__(self) -> Self:
        root = Path(tempfile.mkdtemp(prefix="outbox-disk-"))
        root.chmod(0o755)
        command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "outbox-faults", str(root)]
        with contextlib.suppress(OSError):
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                self._root, self.means = root, "tmpfs"
                return self
        root.rmdir()
        return self

    def take(self, database: Postgres, postgres: PostgresServer) -> None:
        """Moves the outbox table here, without its index."""
        if self._root is None:
            return
        place = self._place(postgres)
        with database.connect_at_once() as connection:
            connection.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(sql.Literal(str(place))))
            connection.execute("ALTER TABLE outbox SET TABLESPACE small")

    def move(self, postgres: PostgresServer) -> dict[Path, Path]:
        """Makes room for the table of a replica; returns the present place and the replica's, if any."""
        return {} if self._root is None else {self._last: self._place(postgres)}

    def _place(self, postgres: PostgresServer) -> Path:
        assert self._root is not None
        place = self._last = self._root / f"table-{next(self._numbers)}"
        place.mkdir(mode=0o700)
        owner = (postgres.folder / "data").stat()
        os.chown(place, owner.st_uid, owner.st_gid)
        return place

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._root is not None:
            # Lazily, because the server's last processes may still be ending.
            subprocess.run(["umount", "--lazy", str(self._root)], check=False, capture_output=True)
            self._root.rmdir()

    @contextmanager
    def full(self, database: Postgres) -> Iterator[None]:
        """Fills the file system almost completely until the block ends."""
        if self._root is None:
            with database.connect_at_once() as connection:
                connection.execute(_REFUSE)
                try:
                    yield
                finally:
                    connection.execute(_LET)
            return
        ballast = self._root / "ballast"
        try:
            self._fill(ballast)
            yield
        finally:
            ballast.unlink()

    @staticmethod
    def _fill(ballast: Path) -> None:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
            file.truncate(file.tell() - LEFT)
