"""What `outbox check` says of a MySQL or MariaDB server."""

from __future__ import annotations

from collections.abc import Iterator

from outbox_sdk import Finding
from outbox_sdk.portable import Session

from outbox_mysql.options import MySqlOptions


def findings(session: Session, options: MySqlOptions) -> Iterator[Finding]:
    yield from ()
