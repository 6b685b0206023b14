"""What Spark's JVM is started with, in files that nobody else can read: everybody can read a command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from outbox_sdk import OutboxError

JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
"""Settings that Spark puts on the JVM's command line."""

_OWNER_ONLY = 0o600
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})


def write_privately(file: Path, text: str) -> None:
    """Writes a new file that only this user can read.

    Raises:
        FileExistsError: There is such a file.
    """
    file.touch(_OWNER_ONLY, exist_ok=False)
    file.write_bytes(os.fsencode(text))


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
    return {**settings, **replaced, JAVA_OPTIONS[0]: f'"@{path}"'}


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
