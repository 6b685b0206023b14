"""Writes down the checksums of jars: ``python -m outbox_servers.lock [GROUP:ARTIFACT:VERSION …]``.

Without arguments, those of the servers of this package. Run it when a version changes, from a network that
can be trusted, and look at the difference: a jar that has kept its version must keep its checksum.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_servers.services.apicurio import APICURIO
from outbox_servers.services.jar_checksums import CHECKSUMS, checksums, write_checksums
from outbox_servers.services.java import find_java
from outbox_servers.services.kafka_home import KAFKA_VERSION, kafka_artifacts
from outbox_servers.services.maven import Coordinate, download_jars
from outbox_servers.services.process import ServiceError
from outbox_servers.services.zookeeper import ZOOKEEPER_VERSION, zookeeper_artifacts

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetches jars with all that they need, and writes their checksums.

    Args:
        arguments: The command line without the program's name; ``None`` for this process's own.

    Returns:
        The exit code: 0, or 1 if they could not be fetched.
    """
    parser = argparse.ArgumentParser(prog="python -m outbox_servers.lock", description=__doc__)
    parser.add_argument("artifacts", nargs="*", type=_coordinate, metavar="GROUP:ARTIFACT:VERSION")
    parser.add_argument("--file", type=Path, default=CHECKSUMS, help="where to write (%(default)s)")
    options = parser.parse_args(arguments)
    own = (kafka_artifacts(KAFKA_VERSION), zookeeper_artifacts(ZOOKEEPER_VERSION), (APICURIO,))
    try:
        # Each by itself: of what several need, each may need another version.
        for artifacts in [options.artifacts] if options.artifacts else own:
            with tempfile.TemporaryDirectory(prefix="outbox-lock-") as work:
                folder = Path(work) / "jars"
                download_jars(artifacts, folder, find_java(), _log, archive=APICURIO in artifacts)
                write_checksums(checksums(folder), options.file)
    except ServiceError as error:
        _log(str(error))
        return 1
    return 0


def _coordinate(text: str) -> Coordinate:
    group, artifact, version = text.split(":")
    return group, artifact, version


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a program's progress


if __name__ == "__main__":
    sys.exit(main())
