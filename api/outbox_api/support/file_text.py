"""Text that is partly in files, such as a password that somebody else replaces while a harvester runs."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from outbox_api.base.errors import AccessDenied, ConfigError

MAX_BYTES = 64 * 1024
"""The longest file that is read."""

_AT_ONCE = getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class FileText:
    """A text with references to files, written as ``${file:PATH}`` in YAML; immutable and picklable.

    It travels as it is: a process that receives it reads the files of its own machine. So the content is
    never in what is sent, and never older than the last :meth:`read`.

    Attributes:
        parts: Pieces of text, and the paths of the files whose content stands between them.
    """

    parts: tuple[str | Path, ...]

    def read(self) -> str:
        """Returns the text with each file's present content, without one newline at the content's end.

        Raises:
            ConfigError: A file cannot be read: there is none, this user may not, it is a pipe or a device, it
                is not UTF-8, or longer than ``MAX_BYTES``. The message names the path and quotes nothing of
                the content.
        """
        return "".join(part if isinstance(part, str) else _content(part) for part in self.parts)

    def __repr__(self) -> str:
        """Returns the paths only, as the pieces of text may be secrets, too."""
        paths = ", ".join(repr(str(part)) for part in self.parts if isinstance(part, Path))
        return f"FileText({paths})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, object]:
        """Tells pydantic, which reads configurations, that an instance is valid, and nothing else is."""
        return {"type": "is-instance", "cls": cls}


def present_text(value: str | FileText) -> str:
    """Returns a value as it is now: a text itself, or what its files contain at this moment.

    Raises:
        ConfigError: See :meth:`FileText.read`.
    """
    return value.read() if isinstance(value, FileText) else value


def _content(path: Path) -> str:
    try:
        # Without blocking: a named pipe could have no writer for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
            ordinary = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(MAX_BYTES + 1) if ordinary else b""
    except OSError as error:
        raise ConfigError(
            f"cannot read the file '{path}' that the configuration names: {error.strerror}"
        ) from None
    if not ordinary:
        raise ConfigError(
            f"'{path}', which the configuration names, is no ordinary file: it is read again whenever "
            "somebody connects, which a pipe or a device does not permit"
        )
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"the file '{path}' that the configuration names is longer than {MAX_BYTES // 1024} KiB"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Not raised from the error, which holds the content.
        reason = f"is not UTF-8 text (byte {error.start})"
        raise ConfigError(f"the file '{path}' that the configuration names {reason}") from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def only_password(password: str | FileText | None, in_data_source: str) -> str:
    """Returns the present password: the one that is set apart, or else the one in the data source.

    Args:
        password: The password that is set apart; ``None`` if there is none.
        in_data_source: The password in the data source; empty if there is none.

    Raises:
        ConfigError: There are two; or a file cannot be read.
    """
    if password is None:
        return in_data_source
    if in_data_source:
        raise ConfigError("there is a password in dataSource and one apart from it; leave one of them out")
    return present_text(password)


def files_of(*values: object) -> tuple[Path, ...]:
    """Returns the files that are among the values: of each :class:`FileText` its own."""
    texts = [value for value in values if isinstance(value, FileText)]
    return tuple(part for text in texts for part in text.parts if isinstance(part, Path))


def login_refused(message: str, files: tuple[Path, ...]) -> AccessDenied:
    """Returns the error of a login that the database has refused.

    It is retryable if the credentials are read from files: who changes a password changes the database and
    the file one after the other, and the next attempt reads the file anew.

    Args:
        message: What was refused, without secrets.
        files: The files that the credentials are read from; see :func:`files_of`.
    """
    if not files:
        return AccessDenied(message)
    names = " and ".join(f"'{file}'" for file in files)
    cure = f"see that {names}, which is read anew at each attempt, has what the database expects"
    return AccessDenied(f"{message}; {cure}", retryable=True)
