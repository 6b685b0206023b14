"""Reads a data source that is a URL; errors quote nothing of it, as it may hold a password."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from outbox_api.base.errors import ConfigError


class Url(NamedTuple):
    """A data source without percent-encoding; empty and 0 are what it leaves open."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    database: str
    query: list[tuple[str, str]]


def read_url(text: str, *schemes: str) -> Url:
    """Reads ``scheme://user:password@host:port/database?key=value``.

    A driver of SQLAlchemy's behind the scheme, as in ``mysql+pymysql``, is ignored.

    Raises:
        ConfigError: It is malformed, or of another scheme.
    """
    try:
        parts = urlsplit(text.strip())
        port, host = parts.port or 0, unquote(parts.hostname or "")
    except ValueError:
        raise _refused("it cannot be read", schemes) from None
    scheme = parts.scheme.partition("+")[0]
    if scheme not in schemes:
        raise _refused(f"it does not begin with {':// or '.join(schemes)}://", schemes)
    if parts.fragment or "@" in f"{parts.path}{parts.query}":
        # The password has a slash, a question mark or a hash, and what follows is a piece of it.
        raise _refused("it has a #, or an @ behind the server's address", schemes)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    database, query = unquote(parts.path.strip("/")), parse_qsl(parts.query, keep_blank_values=True)
    return Url(scheme, host, port, user, password, database, query)


def _refused(reason: str, schemes: tuple[str, ...]) -> ConfigError:
    return ConfigError(
        f"dataSource is no address of a database: {reason}; write {schemes[0]}://user:password@host/name, "
        "with what is neither letter nor digit in user and password percent-encoded (%2F is /, %40 is @)"
    )
