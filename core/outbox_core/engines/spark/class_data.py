"""Archives of class data (AppCDS), with which Spark's JVM starts sooner: where they are, who may use them.

A JVM that starts Spark reads and verifies some 15,000 classes. It can map most of them from an archive
instead, which belongs to one Java, one set of jars and one set of options.
:mod:`outbox_core.engines.spark.training` makes it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from outbox_core.config.ownership import other_writer_above
from outbox_core.engines.spark.security import is_embedded

log = logging.getLogger(__name__)

SWITCH = "OUTBOX_CLASS_DATA"
"""The environment variable that says ``off`` if no archive is to be made or used."""
# A JVM refuses some archives; it then starts without, and need not talk about it.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_PLAIN = re.compile(r"[\w./+@=-]+")
"""Paths that neither Spark nor Java takes for more than one word."""


class Archive:
    """The place of an archive, which need not be there.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def refusal(self) -> Path:
        """The file that says why a JVM cannot make this archive, empty or missing otherwise."""
        return self.path.with_suffix(".lock")

    @property
    def options(self) -> str:
        """The JVM's options to use the archive; empty if it is not there, or may be another user's work."""
        if not self.path.is_file():
            return ""
        if why := other_writer_above(self.path):
            log.warning("an archive of class data is not used, and Spark starts more slowly: %s", why)
            return ""
        return f" -XX:SharedArchiveFile={self.path} -Xshare:auto {_QUIET}"

    def train(self) -> Training | None:
        """Starts to make the archive in a process of its own, unless it is there or cannot be made."""
        if self.path.is_file():
            return None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            refused = self.refusal.is_file() and self.refusal.read_text().strip()
        except OSError as error:
            log.debug("no archive of class data, which would make Spark start sooner: %s", error)
            return None
        if refused:
            log.debug("no archive of class data, see %s: %s", self.refusal, refused)
            return None
        if not os.access(self.path.parent, os.W_OK):
            log.debug("no archive of class data: %s is not writable", self.path.parent)
            return None
        log.debug("making an archive of class data for the next start: %s", self.path)
        return Training(self.path)


class Training:
    """A process that makes an archive at the lowest priority, and ends with this process at the latest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        command = [sys.executable, "-P", "-m", "outbox_core.engines.spark.training", str(path)]
        # In a session of its own, it is ended with its JVM; by itself when its standard input is closed.
        self._process = Popen(  # noqa: S603 - a module of ours
            command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )

    def end(self) -> None:
        """Ends it at once, complete or not. Idempotent."""
        assert self._process.stdin is not None  # noqa: S101 - opened above
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            with suppress(OSError):
                draft_of(self._path, self._process.pid).unlink(missing_ok=True)
        self._process.stdin.close()


def draft_of(archive: Path, pid: int) -> Path:
    """Returns the file that a process writes before it is an archive."""
    return archive.with_suffix(f".{pid}")


def find_archive(java: Path, spark: Path, options: str) -> Archive | None:
    """Returns the place of the archive for a JVM, or ``None`` if it cannot have one.

    Args:
        java: The Java's home.
        spark: Spark's home.
        options: The JVM's options, which it must have been made with.
    """
    if os.environ.get(SWITCH) == "off":
        return None
    # Java's own archive, which ours extends; builds without it exist.
    base = java / "lib" / "server" / "classes.jsa"
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        files = [java / "lib" / "modules", base, *sorted((spark / "jars").glob("*.jar"))]
        parts = [options, *(f"{file} {(stat := file.stat()).st_size} {int(stat.st_mtime)}" for file in files)]
    except (OSError, RuntimeError) as error:  # no such Java; no home
        log.debug("no archive of class data: %s", error)
        return None
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    path = Path(root, "outbox", f"spark-{key}.jsa")
    return Archive(path) if path.is_absolute() and _PLAIN.fullmatch(str(path)) else None


def may_archive(master: str, settings: Mapping[str, str]) -> bool:
    """Tells whether an application's JVM may use an archive: an embedded one, with no options of the user."""
    own = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions", "spark.driver.extraClassPath")
    return is_embedded(master) and not any(name in settings for name in own)
