"""What ``outbox check`` asks a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_sdk import DriverError, Finding, Level

from outbox_postgres.options import PostgresOptions
from outbox_postgres.session import open_table


def check(options: PostgresOptions) -> Sequence[Finding]:
    """Connects and looks at the outbox; never raises."""
    try:
        open_table(options, ()).close()
    except DriverError as error:
        return [Finding(Level.ERROR, "outbox table", str(error), "see the message")]
    return [Finding(Level.OK, "outbox table", "the outbox can be harvested")]
