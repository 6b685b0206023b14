"""What Spark's JVM is started with, in files that nobody else can read: everybody can read a command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from outbox_sdk import OutboxError

JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
"""Settings that Spark puts on the JVM's command line."""

_OWNER_ONLY = 0o600
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})


class PrivateFile:
    """A text for child processes, which only this user can read. A context manager that deletes it.

    Where the system has files in memory it has no name, and is gone with the last process that has it open,
    also if this one is killed. Elsewhere it is a file of ``folder``.

    Args:
        folder: A folder that only this user can write to.
        name: The file's name, unique in the folder.
        text: What it says.

    Attributes:
        path: Where child processes find it, any number of times, if they inherit :attr:`descriptors`.
        descriptors: The file descriptors that children must inherit.
    """

    def __init__(self, folder: Path, name: str, text: str) -> None:
        self.descriptors: tuple[int, ...] = ()
        try:
            descriptor = os.memfd_create(name)
            self.descriptors = (descriptor,)
            self.path = f"/proc/self/fd/{descriptor}"
        except (AttributeError, OSError):  # another system, or one that forbids it
            self.path = str(folder / name)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        os.fchmod(descriptor, _OWNER_ONLY)
        with open(descriptor, "wb", closefd=not self.descriptors) as file:
            file.write(os.fsencode(text))

    def delete(self) -> None:
        """Deletes it, also for children that have it open. Idempotent."""
        if not self.descriptors:
            with suppress(FileNotFoundError):
                os.truncate(self.path, 0)
                Path(self.path).unlink()
        for descriptor in self.descriptors:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)
        self.descriptors = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()


def properties(settings: Mapping[str, str]) -> str:
    """Returns settings as Java reads them from a file of properties."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def java_arguments(settings: Mapping[str, str]) -> str:
    """Returns the JVM's options among settings as Java reads them from a file of arguments.

    Raises:
        OutboxError: Spark would refuse them, with a message that shows them.
    """
    words = [word for name in reversed(JAVA_OPTIONS) for word in _words(name, settings.get(name, ""))]
    return "".join(f'"{word.translate(_ESCAPES)}"\n' for word in words)


def with_java_options(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """Returns settings with a file of arguments instead of the JVM's options."""
    replaced = {name: "" for name in JAVA_OPTIONS if name in settings}
    return {**settings, **replaced, JAVA_OPTIONS[0]: f"@{path}"}


def _words(name: str, options: str) -> Iterable[str]:
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise OutboxError(f"{name} cannot be read: {error}") from None
    if any("-Xmx" in word for word in words):
        raise OutboxError(f"{name} must not have -Xmx: set spark.driver.memory instead")
    return words


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)  # noqa: PLR2004 - ASCII
