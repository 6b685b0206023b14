"""PostgreSQL dialect of outbox."""

from outbox_sdk import Dialect, Driver, hookimpl

from outbox_postgres.dialect import PostgresDialect
from outbox_postgres.options import PostgresOptions
from outbox_postgres.rows import insert

__all__ = ["PostgresDialect", "PostgresOptions", "insert", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``postgres``."""
    return Driver(options=PostgresOptions, create=PostgresDialect, insert=insert)
