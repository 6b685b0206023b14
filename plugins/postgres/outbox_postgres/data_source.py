"""Parses the data source, a connection string of libpq, and keeps its secrets out of messages."""

from __future__ import annotations

import re

from outbox_api import ConfigError, DriverError, present_text
from outbox_api.support.file_text import files_of, only_password
from psycopg import ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict

from outbox_postgres.options import PostgresOptions
from outbox_postgres.search_path import GRACE

_PAIR = re.compile(
    r"""\s*(?P<key>\w+)\s*=
        (?: \s*(?P<quoted>'(?:\\.|[^'\\])*')
          | (?P<bare>\s*(?:\\.|[^\s\\])*) )""",
    re.VERBOSE | re.DOTALL,
)
_NEXT_KEY = re.compile(r"\s+(\w+)=")
_URL = re.compile(r"postgres(?:ql)?://")
_URL_SECRET = re.compile(r"://[^:/?#]*:(.*)@", re.DOTALL)
_KEEPALIVE = {
    # The client notices within about ten seconds that a database's host is gone.
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


class DataSource:
    """A parsed data source.

    Attributes:
        parameters: libpq's connection parameters.
        secrets: What must not appear in an error; the longest first, as one may contain another.
        patience: Seconds for which the server may be silent amid a statement; ``None`` for any time.
    """

    def __init__(self, options: PostgresOptions) -> None:
        """Parses the present data source and adds the password, and defaults: keepalives, time-outs, a name.

        Raises:
            DriverError: It is malformed, or has a second password (not retryable); or a file that it is read
                from cannot be read now. The message quotes nothing of it.
        """
        self.patience = options.statement_timeout + GRACE if options.statement_timeout else None
        try:
            text = present_text(options.data_source)
        except ConfigError as error:
            raise DriverError(str(error), retryable=True) from None
        secrets = _secrets_of_url(text)
        try:
            parsed = conninfo_to_dict(_with_empty_values(text))
        except ProgrammingError:
            # libpq quotes the part that it cannot parse, which may be a piece of the password.
            raise DriverError(
                "dataSource is not a libpq connection string; write key=value pairs, with values that hold "
                "blanks in single quotes, or a postgresql:// URL with special characters percent-encoded",
                retryable=False,
            ) from None
        try:
            parsed["password"] = only_password(options.password, str(parsed.get("password") or ""))
        except ConfigError as error:
            files = files_of(options.data_source, options.password)
            raise DriverError(str(error), retryable=bool(files)) from None
        for key in ("password", "sslpassword"):
            if secret := parsed.get(key):
                secrets.add(str(secret))
        self.secrets = sorted(secrets, key=len, reverse=True)
        defaults = {**_KEEPALIVE, "application_name": "outbox", "client_encoding": "utf8"}
        if options.connect_timeout:
            # libpq takes whole seconds, and raises 1 to 2.
            defaults["connect_timeout"] = str(max(2, round(options.connect_timeout)))
        if "," in str(parsed.get("host", "")):
            defaults["target_session_attrs"] = "read-write"
        self.parameters: dict[str, str] = {
            **defaults,
            **{key: str(value) for key, value in parsed.items() if value is not None},
        }
        # An empty value means libpq's default; "" would hide the environment and the service file.
        self.parameters = {key: value for key, value in self.parameters.items() if value != ""}

    def __str__(self) -> str:
        """Returns the database and the server in words, without secrets."""
        where = self.parameters.get("host") or self.parameters.get("hostaddr") or "the local socket"
        port = self.parameters.get("port", "5432")
        database = self.parameters.get("dbname") or self.parameters.get("user") or "the default"
        text = f"database {database} at {where}:{port}"
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def _with_empty_values(text: str) -> str:
    # libpq skips blanks behind "=", so that "password= dbname=x" would make "dbname=x" the password.
    if _URL.match(text):
        return text
    keywords = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    pairs: list[str] = []
    position = 0
    while pair := _PAIR.match(text, position):
        value_start = pair.start("bare")
        following = _NEXT_KEY.match(text, value_start) if value_start >= 0 else None
        if following and following[1] in keywords:
            pairs.append(text[position:value_start] + "''")
            position = value_start
        else:
            pairs.append(pair[0])
            position = pair.end()
    return "".join(pairs) + text[position:]


def _secrets_of_url(text: str) -> set[str]:
    # Where a password was not percent-encoded, libpq takes pieces of it for a host or a port and quotes them.
    match = _URL_SECRET.search(text) if _URL.match(text) else None
    if not match:
        return set()
    return {match[1], *(piece for piece in re.split(r"[@:/?#]", match[1]) if len(piece) > 1)}
