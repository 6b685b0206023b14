"""PostgreSQL dialect of outbox."""

from outbox_api import Dialect, Driver, hookimpl

from outbox_postgres.dialect import PostgresDialect
from outbox_postgres.insert import insert
from outbox_postgres.options import PostgresOptions

__all__ = ["PostgresDialect", "PostgresOptions", "insert", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``postgres``."""
    return Driver(options=PostgresOptions, create=PostgresDialect, insert=insert)
