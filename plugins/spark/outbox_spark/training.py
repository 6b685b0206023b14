"""Makes an archive of class data: starts Spark as the engine does, and has its JVM write the archive.

``python -m outbox_spark.training`` makes the archive of this machine and says where it is, as
when an image is built. Nothing else makes one.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from outbox_api import EngineError
from pyspark.find_spark_home import _find_spark_home

from outbox_spark.application import JAVA_OPTIONS, Application
from outbox_spark.class_data import find_archive
from outbox_spark.jvm import java_home

DUMP_SECONDS = 1800.0
"""How long a JVM may take to write an archive."""
UNUSED_SECONDS = 30 * 86400.0
"""The age at which another archive is removed: its Java or Spark may be gone. If not, it is made anew."""


def make(archive: Path | None = None) -> Path:
    """Makes an archive, unless it is there. Of several processes that do, each makes a whole one."""
    if archive is None:
        found = find_archive(java_home(), Path(_find_spark_home()), JAVA_OPTIONS)
        if found is None:
            raise EngineError("this Java, or the cache folder's path, allows no archive of class data")
        archive = found
    if archive.is_file():
        return archive
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = archive.with_suffix(f".{os.getpid()}")
    try:
        _train(draft)
        if not draft.is_file():
            raise EngineError(
                "the JVM wrote no archive; is a folder with files, as SPARK_CONF_DIR, on its class path?"
            )
        draft.chmod(0o644)  # the JVM's own mode depends on the umask; what others may write is not used
        draft.rename(archive)
    finally:
        draft.unlink(missing_ok=True)
    _remove_unused(archive)
    return archive


def _train(draft: Path) -> None:
    """Runs what the engine runs until lanes deliver, so that the JVM loads the same classes."""
    application = Application("class-data", "local[1]", {}, f" -XX:ArchiveClassesAtExit={draft}")
    try:
        application.run("class-data", 1, _nothing)
    finally:
        application.stop(DUMP_SECONDS)
    if application.jvm.exit_code:  # killed, say, when memory ran out; what it has written is not complete
        raise EngineError(f"the JVM ended with {application.jvm.exit_code} while it wrote the archive")


def _nothing() -> None:
    """Does what a lane group does as far as the JVM sees."""


def _remove_unused(archive: Path) -> None:
    for file in archive.parent.glob("spark-*"):
        with suppress(OSError):  # another process was first
            if file.stem != archive.stem and time.time() - file.stat().st_mtime > UNUSED_SECONDS:
                file.unlink()


if __name__ == "__main__":
    print(make())  # noqa: T201 - a program's answer
