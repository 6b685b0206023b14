"""The SHA-256 checksums of all jars that may be fetched, in a file of this repository."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_servers.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKSUMS = Path(__file__).parent.parent / "jars.sha256"
"""In the format of ``sha256sum``, sorted by name. ``python -m outbox_servers.lock`` writes it."""


def checksums(folder: Path) -> dict[str, str]:
    """Returns the checksums of the jars and archives in a folder, by file name."""
    files = sorted([*folder.glob("*.jar"), *folder.glob("*.zip")])
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def read_checksums(file: Path = CHECKSUMS) -> dict[str, str]:
    """Reads a file of checksums; one that does not exist has none."""
    if not file.exists():
        return {}
    pairs = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {name: checksum for checksum, name in pairs}


def write_checksums(found: Mapping[str, str], file: Path = CHECKSUMS) -> None:
    """Adds checksums to a file, or replaces those that it has for the same names."""
    merged = {**read_checksums(file), **found}
    lines = [f"{merged[name]}  {name}\n" for name in sorted(merged)]
    file.write_text("".join(lines), encoding="utf-8")


def require_known_jars(folder: Path, file: Path = CHECKSUMS) -> None:
    """Compares the jars in a folder with their checksums; deletes the folder if one is not as it should be.

    Raises:
        ServiceError: A jar has another checksum, or none in the file.
    """
    known = read_checksums(file)
    for name, checksum in checksums(folder).items():
        if known.get(name) != checksum:
            shutil.rmtree(folder)
            if name in known:
                raise ServiceError(
                    f"{name} is not the file that it was when its checksum was written down: its SHA-256 is "
                    f"{checksum}, not {known[name]}. Somebody has changed it on its way; it was deleted."
                )
            raise ServiceError(
                f"{file} has no checksum of {name}. If its source can be trusted, add it: "
                "python -m outbox_servers.lock GROUP:ARTIFACT:VERSION"
            )
