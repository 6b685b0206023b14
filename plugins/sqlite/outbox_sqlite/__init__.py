"""SQLite dialect of outbox."""

from outbox_api import Dialect, Driver, hookimpl
from outbox_api.portable import portable_insert

from outbox_sqlite.dialect import SqliteDialect, SqliteOptions
from outbox_sqlite.idiom import SqliteIdiom

__all__ = ["SqliteDialect", "SqliteIdiom", "SqliteOptions", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``sqlite``."""
    return Driver(options=SqliteOptions, create=SqliteDialect, insert=portable_insert(SqliteIdiom()))
