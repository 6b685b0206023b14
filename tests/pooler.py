"""PgBouncer, which gives sessions of a server to one client after the other."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import ClassVar

import psycopg
from outbox_servers.services.cache import cached_folder
from outbox_servers.services.debian import Suite, architecture, loader_command, unpack_programs
from outbox_servers.services.postgres_binaries import unprivileged_account
from outbox_servers.services.process import ServerProcess
from outbox_servers.services.service import Service
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_SUITE = Suite("Debian", "bookworm")
_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
max_client_conn = 100
default_pool_size = 20
"""


class PgBouncer(Service):
    """A pooler before a server, whose program is fetched once; a context manager.

    Args:
        dsn: The data source of the server, with user and password.
        mode: ``session`` or ``transaction``.
    """

    title: ClassVar[str] = "PgBouncer"
    port_taken: ClassVar[str] = "Address already in use"

    def __init__(self, dsn: str, mode: str = "session") -> None:
        super().__init__()
        self._at = conninfo_to_dict(dsn)
        self._mode = mode

    @property
    def dsn(self) -> str:
        """The data source that goes through the pooler."""
        return make_conninfo("", **{**self._at, "host": "127.0.0.1", "port": self.port})

    def _launch(self) -> ServerProcess:
        def build(folder: Path) -> None:
            unpack_programs(
                ("pgbouncer", "libc6"), _SUITE, folder, re.compile("usr/sbin/pgbouncer$"), lambda _: None
            )

        program = self.folder / "program"
        if not program.exists():
            kept = cached_folder(f"pgbouncer-{_SUITE.name}-{architecture()[0]}", build)
            shutil.copytree(kept, program, symlinks=True)  # where an account that is not root may read it
        account = unprivileged_account() if os.geteuid() == 0 else None
        self.folder.chmod(0o711)
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(
                server=self._at["port"],
                user=self._at["user"],
                password=self._at["password"],
                port=self.port,
                mode=self._mode,
            )
        )
        settings.chmod(0o600)
        if account:
            os.chown(settings, *account)
        command = [*loader_command(program), str(program / "usr/sbin/pgbouncer"), str(settings)]
        return ServerProcess(
            self.title, command, log=self.log, account=account, orphan_folder=self._orphan_folder
        )

    def _ready(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _shut_down(self) -> None:
        self.stop()
