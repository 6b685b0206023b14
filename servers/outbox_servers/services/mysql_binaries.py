"""Finds the programs of MySQL and MariaDB."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.debian import Suite, architecture, loader_command, unpack_programs
from outbox_servers.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACES = ("/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/libexec")


@dataclass(frozen=True)
class Product:
    """How the programs of MySQL and of MariaDB are found.

    Attributes:
        title: Its name.
        program: The server's file name.
        package: The package with the server.
        suites: The suites that have it, by the first digits of its version; the preferred one first.
        wanted: The files of that package that the server needs.
        places: Folders of installations, besides ``PATH`` and the usual ones.
    """

    title: str
    program: str
    package: str
    suites: Mapping[str, Suite]
    wanted: re.Pattern[str]
    places: tuple[str, ...]


MYSQL = Product(
    "MySQL",
    "mysqld",
    "mysql-server-core",
    {"9": Suite("Debian", "sid"), "8.4": Suite("Ubuntu", "resolute")},
    re.compile(
        r"usr/sbin/mysqld$|usr/share/mysql/(?:charsets/|english/|[^/]+$)"
        r"|usr/lib/mysql/(?:private/|plugin/component_reference_cache\.so)"
    ),
    ("/usr/local/mysql/bin", "/opt/homebrew/opt/mysql/bin", "/usr/local/opt/mysql/bin"),
)

MARIADB = Product(
    "MariaDB",
    "mariadbd",
    "mariadb-server-core",
    {"11": Suite("Debian", "trixie"), "10.11": Suite("Debian", "bookworm")},
    re.compile(r"usr/sbin/mariadbd$|usr/share/(?:mysql|mariadb)/(?:charsets/|english/|[^/]+$)"),
    ("/opt/homebrew/opt/mariadb/bin", "/usr/local/opt/mariadb/bin"),
)


@dataclass(frozen=True)
class Installation:
    """An executable server.

    Attributes:
        command: The program, after its loader if it needs one.
        options: The options for the location of its files.
        version: Its version, ``9.7.4`` for example.
    """

    command: tuple[str, ...]
    options: tuple[str, ...]
    version: str

    @property
    def program(self) -> Path:
        """The program's file."""
        return Path(self.command[-1])

    @property
    def share(self) -> list[Path]:
        """The folders that may contain the server's scripts, the most likely first."""
        base = self.program.resolve().parent.parent
        return [base / "share" / "mariadb", base / "share" / "mysql", base / "share"]


def find_installation(
    product: Product, version: str | None = None, progress: Progress = logged
) -> Installation:
    """Returns the server of a distribution's packages (fetched once), or else an installed one.

    Args:
        product: Which server.
        version: The first digits of its version; by default, the preferred one is fetched, and any installed
            one is accepted.
        progress: Called for downloads.

    Raises:
        ServiceError: Neither is available; the message says why.
    """
    try:
        return embedded_installation(product, version, progress)
    except ServiceError as error:
        if found := local_installation(product, version):
            progress(f"{product.title} could not be fetched; using {found.program}")
            return found
        wanted = f"{product.title} {version}" if version else product.title
        raise ServiceError(
            f"{wanted} could not be fetched, and {product.program} is not installed here: {error}"
        ) from error


def embedded_installation(
    product: Product, version: str | None = None, progress: Progress = logged
) -> Installation:
    """Returns the server of a distribution's packages, which are fetched into the cache the first time.

    Raises:
        ServiceError: They are not available, or do not run on this machine.
    """
    series = version or next(iter(product.suites))
    if series not in product.suites:
        known = " and ".join(product.suites)
        raise ServiceError(f"Of {product.title}, {known} can be fetched, and not {series}.")
    suite = product.suites[series]

    def build(folder: Path) -> None:
        unpack_programs([product.package], suite, folder, product.wanted, progress)
        _unpacked(product, folder)  # a server that does not run is not kept

    name = f"{product.title.lower()}-{series}-{suite.distribution.lower()}-{suite.name}-{architecture()[0]}"
    return _unpacked(product, cached_folder(name, build, progress=progress))


def local_installation(product: Product, version: str | None = None) -> Installation | None:
    """Returns the server that is installed on this machine, if its version fits, or None."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES, *product.places])
    program = shutil.which(product.program, path=path)
    if program is None:
        return None
    try:
        found = Installation((program,), (), _version(product, [program]))
    except ServiceError:
        return None
    return found if f"{found.version}.".startswith(f"{version}." if version else "") else None


def _unpacked(product: Product, folder: Path) -> Installation:
    command = (*loader_command(folder), str(folder / "usr/sbin" / product.program))
    base = folder / "usr"
    share = next(each for each in (base / "share/mariadb", base / "share/mysql") if each.is_dir())
    options = (
        f"--basedir={base}",
        f"--plugin-dir={base}/lib/mysql/plugin",
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share}/charsets",
    )
    return Installation(command, options, _version(product, command))


def _version(product: Product, command: tuple[str, ...] | list[str]) -> str:
    """Returns the version that a program reports; checks that it is the right product.

    MariaDB installs a link named ``mysqld``, which may be left over from an incomplete installation.
    """
    try:
        done = subprocess.run(  # noqa: S603 - a server of the chosen installation
            [*command, "--no-defaults", "--version"], check=False, capture_output=True, text=True
        )
    except OSError as error:
        raise ServiceError(f"{command[-1]} does not run: {error}") from error
    told = re.search(r"Ver (\d+(?:\.\d+)+)", done.stdout)
    if told is None:
        raise ServiceError(f"{command[-1]} does not run: {done.stdout[-500:]}{done.stderr[-1500:]}")
    if ("MariaDB" in done.stdout) != (product is MARIADB):
        raise ServiceError(f"{command[-1]} is not {product.title}: {done.stdout.strip()}")
    return told[1]
