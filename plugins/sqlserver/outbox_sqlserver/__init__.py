"""SQL Server dialect of outbox."""

from outbox_api import Dialect, Driver, hookimpl
from outbox_api.portable import portable_insert

from outbox_sqlserver.dialect import SqlServerDialect
from outbox_sqlserver.idiom import SqlServerIdiom
from outbox_sqlserver.options import SqlServerOptions

__all__ = ["SqlServerDialect", "SqlServerIdiom", "SqlServerOptions", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``sqlserver``."""
    return Driver(options=SqlServerOptions, create=SqlServerDialect, insert=portable_insert(SqlServerIdiom()))
