"""Unpacks programs from packages of Debian and Ubuntu; with their own libraries they run on any Linux."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.request import urlopen

from outbox_servers.services.cache import Progress, logged
from outbox_servers.services.process import ServiceError
from outbox_servers.services.signed_release import signed_checksum

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_MACHINES = {"x86_64": ("amd64", "x86_64-linux-gnu"), "aarch64": ("arm64", "aarch64-linux-gnu")}
_DOWNLOADS_AT_ONCE = 6
_ATTEMPTS = 3
_TIMEOUT = 60  # seconds without any data

# Programs and scripts that a package depends on (perl, for instance) are for its installation only.
_LIBRARIES = {"libs", "oldlibs"}

_AR_MAGIC, _AR_HEADER = b"!<arch>\n", 60


@dataclass(frozen=True)
class Suite:
    """A release of a distribution.

    Attributes:
        distribution: ``Debian`` or ``Ubuntu``.
        name: The release's name, ``sid`` for example.
    """

    distribution: str
    name: str

    @property
    def mirror_variable(self) -> str:
        """The environment variable that names another archive than the distribution's."""
        return f"OUTBOX_{self.distribution.upper()}_MIRROR"

    def archive(self, machine: str) -> str:
        """Returns the address of the archive for an architecture, without a slash at its end."""
        own = "https://deb.debian.org/debian"
        if self.distribution == "Ubuntu":
            own = "https://archive.ubuntu.com/ubuntu"
            if machine != "amd64":
                own = "https://ports.ubuntu.com/ubuntu-ports"
        return os.environ.get(self.mirror_variable, own).rstrip("/")


@dataclass(frozen=True)
class Package:
    """A package, according to the index of a suite.

    Attributes:
        name: Its name.
        path: Where its file is, under the archive's root.
        size: The size of the file in bytes.
        sha256: The checksum of the file, in hexadecimal digits.
        section: The kind of package, ``libs`` for example.
        needs: The names of the packages that it depends on; of alternatives, the first.
    """

    name: str
    path: str
    size: int
    sha256: str
    section: str
    needs: tuple[str, ...]


def architecture() -> tuple[str, str]:
    """Returns the distributions' names of this machine's architecture and of its library folder.

    Raises:
        ServiceError: Their programs do not run on this machine.
    """
    try:
        if platform.system() == "Linux":
            return _MACHINES[platform.machine()]
    except KeyError:
        pass
    raise ServiceError(
        f"Debian's and Ubuntu's programs need Linux on {' or '.join(_MACHINES)}; "
        f"this is {platform.system()} on {platform.machine()}."
    )


def unpack_programs(
    names: Sequence[str],
    suite: Suite,
    folder: Path,
    wanted: re.Pattern[str],
    progress: Progress = logged,
    *,
    without: Collection[str] = (),
) -> None:
    """Unpacks selected files of packages, and the shared libraries that they need, into a folder.

    The packages of a suite change, so it takes the newest. ``OUTBOX_DEBIAN_MIRROR`` and
    ``OUTBOX_UBUNTU_MIRROR`` name other archives. It checks every package against the index, and the index
    against the distribution's signature.

    Args:
        names: The packages' names.
        suite: The suite that has them.
        folder: An existing folder.
        wanted: Matches the start of the paths to unpack, without a leading slash; libraries are always
            unpacked.
        progress: Called for every download.
        without: The packages of libraries that are taken from the machine instead.

    Raises:
        ServiceError: A package is not available, is damaged, or does not fit this machine; or the
            distribution has not signed the index.
    """
    machine, triplet = architecture()
    archive = suite.archive(machine)
    keep = re.compile(rf"(?:usr/)?lib/{triplet}/[^/]+\.so[^/]*$|{wanted.pattern}")
    progress(f"Reading the index of {suite.distribution} {suite.name}")
    with tempfile.TemporaryDirectory(prefix="outbox-debian-") as work:
        index = _signed_index(f"{archive}/dists/{suite.name}", machine, suite, Path(work))
        needed = closure(names, read_index(lzma.decompress(index.read_bytes()).decode()))
        packages = [each for each in needed if each.name not in without]
        megabytes = sum(each.size for each in packages) / 1e6
        progress(
            f"Fetching {', '.join(names)} and libraries from {suite.distribution} ({megabytes:.0f} MB, once)"
        )

        def fetch(each: Package) -> Path:
            file = Path(work) / f"{each.name}.deb"
            _download(f"{archive}/{each.path}", file, suite)
            if hashlib.sha256(file.read_bytes()).hexdigest() != each.sha256:
                raise ServiceError(
                    f"{archive}/{each.path} is not the file that the index of {suite.name} describes."
                )
            return file

        with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
            for file in pool.map(fetch, packages):
                unpack(file, folder, keep)


def _signed_index(dists: str, machine: str, suite: Suite, work: Path) -> Path:
    release, index = work / "InRelease", work / "Packages.xz"
    path = f"main/binary-{machine}/Packages.xz"
    for attempt in range(1, _ATTEMPTS + 1):
        _download(f"{dists}/InRelease", release, suite)
        signed = signed_checksum(release.read_bytes(), suite.distribution, path)
        _download(f"{dists}/{path}", index, suite)
        if hashlib.sha256(index.read_bytes()).hexdigest() == signed:
            return index
        if attempt < _ATTEMPTS:
            time.sleep(attempt)  # an archive that changes right now
    raise ServiceError(f"{dists}/{path} is not the file that {suite.distribution} has signed.")


def loader_command(folder: Path) -> list[str]:
    """Returns the command that runs an unpacked program with its own libraries: append the program's path.

    Raises:
        ServiceError: There is no loader in the folder.
    """
    _, triplet = architecture()
    libraries = [each for each in (folder / "usr/lib" / triplet, folder / "lib" / triplet) if each.is_dir()]
    for place in libraries:
        for loader in sorted(place.glob("ld-linux-*.so.*")):
            return [str(loader), "--library-path", os.pathsep.join(map(str, libraries))]
    raise ServiceError(f"The loader is missing in {folder}; delete that folder, and it is fetched again.")


def read_index(text: str) -> dict[str, str]:
    """Returns the paragraphs of an index (the file ``Packages``) by the package that they describe."""
    # There are tens of thousands, of which few are needed: each is parsed on demand.
    paragraphs = (each for each in text.split("\n\n") if each.startswith("Package: "))
    return {each[len("Package: ") : each.index("\n")]: each for each in paragraphs}


def describe(paragraph: str) -> Package:
    """Parses a paragraph of the index."""
    fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", paragraph, re.MULTILINE))
    clauses = ",".join(fields.get(name, "") for name in ("Pre-Depends", "Depends")).split(",")
    first = [re.match(r"[a-z0-9.+-]+", clause.strip()) for clause in clauses]
    return Package(
        fields["Package"],
        fields["Filename"],
        int(fields["Size"]),
        fields["SHA256"],
        fields.get("Section", ""),
        tuple(name[0] for name in first if name),
    )


def closure(names: Sequence[str], index: Mapping[str, str]) -> list[Package]:
    """Returns packages and all libraries that they need, themselves first.

    Args:
        names: The packages' names.
        index: As ``read_index`` returns it.

    Raises:
        ServiceError: The index lacks one of them.
    """
    if missing := [name for name in names if name not in index]:
        raise ServiceError(f"That suite has no package {missing[0]}.")
    seen = set(names)
    found = [describe(index[name]) for name in names]
    for package in found:  # the list grows meanwhile
        for need in package.needs:
            if need in index and need not in seen:
                seen.add(need)
                library = describe(index[need])
                if library.section in _LIBRARIES:
                    found.append(library)
    return found


def unpack(file: Path, folder: Path, keep: re.Pattern[str]) -> None:
    """Unpacks those files of a package whose paths match, and links between them.

    Raises:
        ServiceError: The file is no Debian package.
    """
    with _data(file) as data, tarfile.open(fileobj=data) as archive:
        for member in archive:
            path = member.name.removeprefix("./")
            if not keep.match(path) or ".." in path.split("/"):
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym() and not member.linkname.startswith("/"):
                target.symlink_to(member.linkname)
            elif source := archive.extractfile(member) if member.isreg() else None:
                with target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _data(file: Path) -> IO[bytes]:
    """Returns the archive of files in a package, which is itself an ``ar`` archive of three members.

    Python's tarfile can decompress it, except for Ubuntu's compression before Python 3.14.
    """
    with file.open("rb") as package:
        if package.read(len(_AR_MAGIC)) != _AR_MAGIC:
            raise ServiceError(f"{file.name} is not a Debian package.")
        for name, size in _ar_members(package):
            if name.startswith("data.tar"):
                content = package.read(size)
                return io.BytesIO(zstd.decompress(content) if name.endswith(".zst") else content)
            package.seek(size + size % 2, os.SEEK_CUR)
    raise ServiceError(f"{file.name} contains no files.")


def _ar_members(package: IO[bytes]) -> Iterator[tuple[str, int]]:
    while len(header := package.read(_AR_HEADER)) == _AR_HEADER:
        yield header[:16].decode().strip().rstrip("/"), int(header[48:58])


def _download(address: str, into: Path, suite: Suite) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with urlopen(address, timeout=_TIMEOUT) as source, into.open("wb") as copy:  # noqa: S310 - the distribution's archive or the user's own
                shutil.copyfileobj(source, copy)
        except (OSError, HTTPException) as error:
            if attempt == _ATTEMPTS:
                raise ServiceError(
                    f"Could not fetch {address}: {error}. Check the network and the proxy variables, or name "
                    f"a mirror in {suite.mirror_variable}."
                ) from error
            time.sleep(attempt)
        else:
            return
