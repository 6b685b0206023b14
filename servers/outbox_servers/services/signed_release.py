"""Whether an index of Debian or Ubuntu is the one that the distribution has signed."""

from __future__ import annotations

import re
from pathlib import Path

from outbox_servers.services.process import ServiceError

KEYS = Path(__file__).parent.parent / "keys"
"""The distributions' public keys, each in a file named after the distribution."""

_LINE = re.compile(r"^ ([0-9a-f]{64}) +\d+ (\S+)$", re.MULTILINE)


def signed_checksum(release: bytes, distribution: str, path: str) -> str:
    """Returns the SHA-256 checksum that a signed list of a suite's files (``InRelease``) has for one of them.

    Args:
        release: The list, with its signature.
        distribution: Who must have signed it, ``Debian`` or ``Ubuntu``. How old the signature is does not
            matter, as long as the key is valid: mirrors may be behind.
        path: The file, relative to the list.

    Raises:
        ServiceError: None of the distribution's keys has signed the list, or it lacks the file.
    """
    from pysequoia import Cert, verify  # noqa: PLC0415 - there is none for some systems, and few need it

    keys = Cert.split_bytes((KEYS / f"{distribution.lower()}.asc").read_bytes())
    try:
        # What stands outside the signature is not among these bytes.
        content = verify(release, store=lambda _: keys).bytes or b""
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ServiceError(f"{distribution} has not signed this index of its packages: {reason}") from error
    checksums = content.decode().partition("\nSHA256:\n")[2]
    found: dict[str, str] = {name: checksum for checksum, name in _LINE.findall(checksums)}
    if path not in found:
        raise ServiceError(f"{distribution}'s list of signed files lacks {path}.")
    return found[path]
