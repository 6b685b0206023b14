"""PostgreSQL dialect of outbox."""

from outbox_api import Dialect, Driver, hookimpl
from outbox_api.base.errors import PluginError
from outbox_api.portable import portable_insert

from outbox_postgres.ddl import PostgresIdiom
from outbox_postgres.dialect import PostgresDialect
from outbox_postgres.options import PostgresOptions, QuotedName

__all__ = ["PostgresDialect", "PostgresIdiom", "PostgresOptions", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``postgres``."""
    insert = portable_insert(PostgresIdiom(), QuotedName.parse)
    return Driver(PostgresOptions, PostgresDialect, insert, _require)


def _require() -> None:
    try:
        import psycopg  # noqa: F401, PLC0415 - only who connects needs it
    except ImportError as error:
        cure = "run: pip install 'psycopg[binary]', or install libpq"
        raise PluginError(f"psycopg cannot be loaded; {cure} ({error})") from error
