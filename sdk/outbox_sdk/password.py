"""A database's password: in the data source or apart from it, and perhaps in a file that changes."""

from __future__ import annotations

from pathlib import Path

from outbox_sdk.errors import AccessDenied, ConfigError
from outbox_sdk.file_text import FileText, present_text


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
