"""Archives of class data (AppCDS), with which Spark's JVM starts sooner: where they are, who may use them.

A JVM that starts Spark reads and verifies some 15,000 classes. It can map most of them from an archive
instead, which belongs to one Java, one set of jars and one set of options. Whoever builds an image, or sets
up a machine, makes it with :mod:`outbox_spark.training`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from outbox_api.support.ownership import other_writer_above

from outbox_spark.security import is_embedded

log = logging.getLogger("outbox.spark")

# A JVM refuses some archives; it then starts without, and need not talk about it.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_PLAIN = re.compile(r"[\w./+@=-]+")
"""Paths that neither Spark nor Java takes for more than one word."""


def options_for(archive: Path) -> str:
    """Returns the JVM's options to use an archive; empty if there is none, or perhaps another user's."""
    if not archive.is_file():
        return ""
    if why := other_writer_above(archive):
        log.warning("an archive of class data is not used, and Spark starts more slowly: %s", why)
        return ""
    return f" -XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"


def find_archive(java: Path, spark: Path, options: str) -> Path | None:
    """Returns the place of the archive for a JVM, or ``None`` if it cannot have one."""
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
    return path if path.is_absolute() and _PLAIN.fullmatch(str(path)) else None


def may_archive(master: str, settings: Mapping[str, str]) -> bool:
    """Tells whether an application's JVM may use an archive: an embedded one, with no options of the user."""
    own = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions", "spark.driver.extraClassPath")
    return is_embedded(master) and not any(name in settings for name in own)
