"""The store, which may be away, refuse, or hang: no write takes a lane much of its time."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any
from uuid import uuid4

import fsspec
from outbox_api import ConfigError, FileText, OutboxError, PluginError, TransformUnavailable, present_text

from outbox_claim_check.options import ClaimCheckOptions

PAUSE_SECONDS = 1.0
"""The least time between two tries at a store that is away."""
PAUSE_TIMES = 3.0
"""They are apart by so many times what the first has taken: the lane has the rest of the time for others."""
MOST_HANGING = 64
"""So many writes to a store may hang in a process: a thread cannot be ended from outside."""
MOST_HANGING_BYTES = 256 << 20
"""So much may they have in memory, together with the next."""
_NUMBER = re.compile(r"\d{1,9}")
_TEXT = re.compile(r"key|secret|token|pass|user|name|account|bucket|project", re.IGNORECASE)
"""Options that are texts, even if they look like numbers."""
_hanging: defaultdict[str, dict[Future[None], int]] = defaultdict(dict)
"""URL of a store → writes that hang, of all lanes and of those that ended before, and their bytes."""


class Store:
    """Writes objects; belongs to one thread."""

    def __init__(self, options: ClaimCheckOptions) -> None:
        protocol = options.store.partition(":")[0]
        try:
            fsspec.get_filesystem_class(protocol)
        except ImportError as error:
            raise PluginError(f"a store of {protocol}:// needs a library: {error}") from error
        except ValueError as error:
            raise ConfigError(f"fsspec knows no store of {protocol}://") from error
        self._options = options
        self._files: tuple[Any, str] | None = None
        self._due = 0.0
        self._away = ""

    def write(self, name: str, content: bytes) -> None:
        """Writes an object, or another time the same.

        A store that was away a moment ago is not asked again. Then it is opened anew, as the library may have
        a dead connection, or credentials that have been replaced.

        Raises:
            TransformUnavailable: It is away; what its library says may contain a secret, so is not repeated.
        """
        began = monotonic()
        if began < self._due:
            raise TransformUnavailable(self._away)
        if self._is_crowded(len(content)):
            raise TransformUnavailable(f"the store {self._options.store} lets too many writes hang")
        call: Future[None] = Future()
        # Not of a pool, whose threads the end of the process would wait for.
        Thread(target=self._run, args=(call, name, content), name="claim-check", daemon=True).start()
        try:
            call.result(self._options.timeout)
        except BaseException as error:  # noqa: BLE001 - libraries raise what they like; none is the row's fault
            self._files = None
            self._away = f"the store {self._options.store} {self._said(call, error)}"
            if not call.done():
                _hanging[self._options.store][call] = len(content)
            now = monotonic()
            self._due = now + max(PAUSE_SECONDS, PAUSE_TIMES * (now - began))
            raise TransformUnavailable(self._away) from None

    def _is_crowded(self, size: int) -> bool:
        hanging = _hanging[self._options.store]
        for call in [*hanging]:
            if call.done():
                hanging.pop(call, None)
        sizes = [*hanging.values()]
        return len(sizes) >= MOST_HANGING or bool(sizes and sum(sizes, size) > MOST_HANGING_BYTES)

    def _said(self, call: Future[None], error: BaseException) -> str:
        if not call.done():
            return f"has not answered for {self._options.timeout:g} s"
        return f"cannot be written to: {error if isinstance(error, OutboxError) else type(error).__name__}"

    def _run(self, call: Future[None], name: str, content: bytes) -> None:
        try:
            self._files = files, path = self._files or self._opened()
            place = f"{path.rstrip('/')}/{name}"
            if getattr(files, "local_file", False):
                _write_file(Path(place), content)
            else:
                files.pipe_file(place, content)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            call.set_exception(error)
        else:
            call.set_result(None)

    def _opened(self) -> tuple[Any, str]:
        options = _present(self._options.store_options)
        files, path = fsspec.core.url_to_fs(self._options.store, skip_instance_cache=True, **options)
        return files, path


def _write_file(place: Path, content: bytes) -> None:
    """Writes a file as stores write objects: readers see it as a whole, and it outlasts a crash."""
    part = place.with_name(f"{place.name}.{uuid4().hex}")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)
    except BaseException:
        part.unlink(missing_ok=True)  # a full disk would stay full
        raise
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _present(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options with the present content of files, and with numbers, which were read as texts."""
    return {key: _present_value(key, value) for key, value in options.items()}


def _present_value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _present(value)
    if isinstance(value, FileText):
        return present_text(value)
    is_number = isinstance(value, str) and _NUMBER.fullmatch(value) and not _TEXT.search(key)
    return int(value) if is_number else value
