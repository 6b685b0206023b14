"""The cache folder: files that are built or downloaded once, for all later processes."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

logger = logging.getLogger("outbox.servers")

Progress = Callable[[str], None]
"""Receives a line of text for each step of a slow operation."""


def logged(line: str) -> None:
    """Logs progress; the default callback."""
    logger.info(line)


def cache_root() -> Path:
    """Returns the cache folder, ``$OUTBOX_CACHE`` or ``~/.cache/outbox``, and creates it."""
    named = os.environ.get("OUTBOX_CACHE")
    root = Path(named).expanduser() if named else Path.home() / ".cache" / "outbox"
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


def cached_folder(
    name: str, build: Callable[[Path], None], *, root: Path | None = None, progress: Progress = logged
) -> Path:
    """Returns the folder ``name`` of the cache, which ``build`` fills if it does not exist yet.

    The folder is renamed to its name after ``build`` has returned, so it is always complete. If several
    processes need it at the same time, one builds and the others wait. The next build removes what a killed
    build has left behind.

    Args:
        name: A file name; it should contain the version of what is cached.
        build: Fills the (existing, empty) folder that it receives; if it raises, nothing is kept.
        root: The folder of the cache; by default ``cache_root()``.
        progress: Called when another process is building.

    Raises:
        Exception: Whatever ``build`` raises.
    """
    root = root or cache_root()
    final = root / name
    if final.is_dir():
        return final
    lock = FileLock(root / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"Another process is preparing {final}; waiting for it")
        lock.acquire()
    try:
        if not final.is_dir():
            _build(final, build)
    finally:
        lock.release()
    return final


def _build(final: Path, build: Callable[[Path], None]) -> None:
    prefix = f".{final.name}-"
    # The holder of the lock is the only builder, so any other unfinished folder is left over.
    for orphan in final.parent.glob(f"{prefix}*"):
        shutil.rmtree(orphan, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        build(unfinished)
        # mkdtemp makes it private, but a server may run under another user id.
        unfinished.chmod(0o755)
        unfinished.rename(final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
