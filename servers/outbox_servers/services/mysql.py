"""Real MySQL and MariaDB servers as child processes."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
import subprocess
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pymysql

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.external import MySql
from outbox_servers.services.mysql_binaries import MARIADB, MYSQL, Installation, Product, find_installation
from outbox_servers.services.process import ServerProcess, ServiceError
from outbox_servers.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping

_SETTINGS = {
    "bind-address": "127.0.0.1",
    # Relative to the data folder, so never too long a path; clients use TCP.
    "socket": "mysqld.sock",
    "pid-file": "mysqld.pid",
    "skip-name-resolve": "ON",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
}

# Settings that are fixed when the data folder is created.
_MADE_WITH = ("lower-case-table-names", "innodb-page-size", "innodb-data-file-path")

# The server executes this before it accepts connections. One statement per line.
_WELCOME = """SET sql_log_bin=0;
CREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '{password}';
ALTER USER root@'%' IDENTIFIED BY '{password}';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
DROP USER IF EXISTS root@localhost, root@'127.0.0.1', root@'::1';
"""


class _Server(Service, MySql):
    """What MySQL and MariaDB have in common as servers; see ``MySqlServer``."""

    product: ClassVar[Product]
    port_taken: ClassVar[str] = "Address already in use"
    own_settings: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        *,
        folder: Path | None = None,
        settings: Mapping[str, str | int] | None = None,
        version: str | None = None,
        installation: Installation | None = None,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        given = {name.replace("_", "-"): str(value) for name, value in (settings or {}).items()}
        self._settings = {**_SETTINGS, **self.own_settings, **given}
        self._version = version
        self._installation = installation
        self._progress = progress
        self._password = ""

    @property
    def dsn(self) -> str:
        """The address of the account ``root``, without a database; contains a password."""
        return f"mysql://root:{self._password}@127.0.0.1:{self.port}/"

    def _launch(self) -> ServerProcess:
        installation = self._installation = self._installation or find_installation(
            self.product, self._version, self._progress
        )
        data = self.folder / "data"
        if not data.exists():
            self._create(installation, data)
        for left in data.glob("mysqld.sock*"):
            left.unlink()  # A killed server's lock blocks the next one if its process id is in use again.
        # A server that starts deletes what it takes for its own former tables, which may be another server's.
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        welcome = self._write_welcome()
        self._progress(f"Starting {self.title} {installation.version} on 127.0.0.1:{self.port}")
        options = {**self._settings, "port": str(self.port), "init-file": str(welcome)}
        options["tmpdir"] = str(temporary)
        return ServerProcess(
            self.title,
            [*_command(installation, data), *(f"--{name}={value}" for name, value in options.items())],
            log=self.log,
            environment=_clean_environment(),
            orphan_folder=self._orphan_folder,
        )

    def _write_welcome(self) -> Path:
        password = self.folder / "password"
        if not password.exists():
            password.touch(mode=0o600)
            password.write_text(secrets.token_hex(16))
        self._password = password.read_text()
        welcome = self.folder / "welcome.sql"
        welcome.touch(mode=0o600)
        welcome.write_text(_WELCOME.format(password=self._password))
        return welcome

    def _create(self, installation: Installation, data: Path) -> None:
        """Copies a new data folder from the cache; creating one takes the server seconds."""
        made_with = [f"--{name}={self._settings[name]}" for name in _MADE_WITH if name in self._settings]
        identity = [*installation.command, installation.version, *made_with]
        digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:16]

        def build(folder: Path) -> None:
            self._progress(f"Creating a data folder of {self.title} {installation.version} (once)")
            self._initialize(installation, folder / "data", made_with)
            (folder / "data" / "auto.cnf").unlink(missing_ok=True)  # The identity of a single server.

        template = cached_folder(f"{self.title.lower()}-data-{digest}", build, progress=self._progress)
        # After the rename the copy is complete, even if this process is killed.
        unfinished = data.with_name("data.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(template / "data", unfinished)
        unfinished.chmod(0o700)
        unfinished.rename(data)

    def _initialize(self, installation: Installation, data: Path, options: list[str]) -> None:
        data.mkdir(mode=0o700)
        mode, script = self._creation(installation)
        done = subprocess.run(  # noqa: S603 - a server of the chosen installation
            [*_command(installation, data), *options, *mode],
            check=False,
            capture_output=True,
            input=script,
            cwd=data.parent,
            env=_clean_environment(),
        )
        if done.returncode != 0:
            output = (done.stdout[-1000:] + done.stderr[-3000:]).decode(errors="replace")
            raise ServiceError(f"{self.title} could not create a data folder in {data}:\n{output}")

    @abstractmethod
    def _creation(self, installation: Installation) -> tuple[list[str], bytes]:
        """Returns the options with which the server creates a data folder, and its input."""

    def _ready(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        try:
            self.connect(connect_timeout=2, read_timeout=2).close()
        except pymysql.OperationalError:
            return False
        return True


class MySqlServer(_Server):
    """A MySQL server that listens on 127.0.0.1, with MySQL's own settings, which are durable.

    Runs Debian's MySQL 9 (or Ubuntu's 8.4), which is fetched once, or a local installation. It
    keeps its port and its data when it is stopped or killed and started again.

    Args:
        folder: The folder of data and log; by default a new temporary folder, deleted at the end.
        settings: Server variables (as in ``my.cnf``, section ``mysqld``) in addition to or instead of those
            here.
        version: The first digits of the wanted version.
        installation: The server to run; found by ``find_installation`` if not given.
        progress: Receives lines of text while the server is set up.
    """

    title: ClassVar[str] = "MySQL"
    product: ClassVar[Product] = MYSQL
    own_settings: ClassVar[Mapping[str, str]] = {"mysqlx": "OFF", "secure-file-priv": "NULL"}

    def _creation(self, installation: Installation) -> tuple[list[str], bytes]:
        del installation
        return ["--initialize-insecure", "--secure-file-priv=NULL"], b""


class MariaDbServer(_Server):
    """A MariaDB server that listens on 127.0.0.1, with MariaDB's own settings, which are durable.

    Runs Debian's MariaDB 11 (or 10.11), which is fetched once, or a local installation. Stopped, killed and
    started again, it keeps its port and its data.

    Args:
        folder: The folder of data and log; by default a new temporary folder, deleted at the end.
        settings: Server variables (as in ``my.cnf``, section ``mariadbd``) in addition to or instead of those
            here.
        version: The first digits of the wanted version.
        installation: The server to run; found by ``find_installation`` if not given.
        progress: Receives lines of text while the server is set up.
    """

    title: ClassVar[str] = "MariaDB"
    product: ClassVar[Product] = MARIADB

    def _creation(self, installation: Installation) -> tuple[list[str], bytes]:
        # As the script mariadb-install-db does, which finds nothing in an unpacked folder.
        options = ["--bootstrap", "--log-warnings=0", "--max-allowed-packet=8M", "--net-buffer-length=16K"]
        return options, _system_tables(installation)


def _system_tables(installation: Installation) -> bytes:
    for share in installation.share:
        for brand in ("mariadb", "mysql"):
            parts = [share / f"{brand}_system_tables.sql", share / f"{brand}_performance_tables.sql"]
            parts += [share / f"{brand}_system_tables_data.sql", share / "maria_add_gis_sp_bootstrap.sql"]
            parts += [share / f"{brand}_sys_schema.sql"]
            if all(part.is_file() for part in parts):
                script = b"".join(part.read_bytes() for part in parts)
                # This machine's name has no place in a folder that is copied.
                lines = [
                    line for line in script.splitlines(keepends=True) if b"@current_hostname" not in line
                ]
                return b"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n" + b"".join(lines)
    raise ServiceError(f"MariaDB's system tables are in none of {', '.join(map(str, installation.share))}.")


def _command(installation: Installation, data: Path) -> list[str]:
    command = [*installation.command, "--no-defaults", *installation.options, f"--datadir={data}"]
    # Only root can read root's binaries and data, so the server runs as root, which needs this option.
    return [*command, "--user=root"] if os.geteuid() == 0 else command


def _clean_environment() -> dict[str, str]:
    """Returns the environment without variables that change a server, or do not fit its loader."""
    foreign = ("MYSQL", "MARIADB", "LD_PRELOAD")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
