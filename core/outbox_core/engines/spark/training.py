"""Makes an archive of class data: starts Spark as the engine does, and has its JVM write the archive.

As a program: ``python -m outbox_core.engines.spark.training`` makes the archive of this machine and says
where it is, as when an image is built. With a path, as the engine calls it, it makes that file in the
background, and ends when its standard input does.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

from outbox_sdk import OutboxError
from pyspark.find_spark_home import _find_spark_home

from outbox_core.engines.spark.class_data import Archive, draft_of, find_archive
from outbox_core.engines.spark.java import java_home
from outbox_core.engines.spark.session import JAVA_OPTIONS, Application
from outbox_core.engines.spark.task import Batches, receipts

DUMP_SECONDS = 1800.0
"""How long a JVM at the lowest priority may take to write an archive."""
UNUSED_SECONDS = 30 * 86400.0
"""The age at which another archive is removed: its Java or Spark may be gone. If not, it is made anew."""
REFUSED = "the JVM wrote no archive; is a folder with files, as SPARK_CONF_DIR, on its class path?"


def make(archive: Path | None = None) -> Path:
    """Makes an archive, unless it is there or another process is making it.

    Args:
        archive: Where; left out: where the engine will look for it.

    Returns:
        Where it is, or will be.

    Raises:
        OutboxError: There can be none; or Spark does not start.
        OSError: The folder cannot be written to.
    """
    if archive is None:
        found = find_archive(java_home(), Path(_find_spark_home()), JAVA_OPTIONS)
        if found is None:
            raise OutboxError("this Java, or the cache folder's path, allows no archive of class data")
        archive = found.path
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Archive(archive).refusal.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return archive
        if archive.is_file():
            return archive
        lock.truncate(0)
        draft = draft_of(archive, os.getpid())
        try:
            _train(draft)
            if not draft.is_file():
                lock.write(REFUSED)
                raise OutboxError(REFUSED)
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
        application.run("class-data", range(1), _deliver)
    finally:
        application.stop(DUMP_SECONDS)
    if application.exit_code:  # killed, say, when memory ran out; what it has written is not complete
        raise OutboxError(f"the JVM ended with {application.exit_code} while it wrote the archive")


def _deliver(batches: Batches) -> Batches:
    for _ in batches:
        yield receipts(0, {0: 1})


def _remove_unused(archive: Path) -> None:
    for file in archive.parent.glob("spark-*"):
        with suppress(OSError):  # another process was first
            if file.stem != archive.stem and time.time() - file.stat().st_mtime > UNUSED_SECONDS:
                file.unlink()


def _yield_to_others() -> None:
    """Leaves processor and memory to everybody else."""
    os.nice(19)
    with suppress(OSError, AttributeError):  # not on every system
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with_parent(archive: Path) -> None:
    """Waits until the parent has ended, or closes the pipe; then ends all processes of this session."""
    sys.stdin.buffer.read()
    draft_of(archive, os.getpid()).unlink(missing_ok=True)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Runs the program."""
    if len(sys.argv) == 1:
        print(make())  # noqa: T201 - a program's answer
        return
    archive = Path(sys.argv[1])
    _yield_to_others()
    Thread(target=_end_with_parent, args=(archive,), daemon=True).start()
    make(archive)


if __name__ == "__main__":
    main()
