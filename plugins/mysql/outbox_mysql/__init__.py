"""MySQL and MariaDB dialect of outbox."""

from outbox_api import Dialect, Driver, hookimpl
from outbox_api.portable import portable_insert

from outbox_mysql.dialect import MySqlDialect
from outbox_mysql.idiom import MySqlIdiom
from outbox_mysql.options import MySqlOptions

__all__ = ["MySqlDialect", "MySqlIdiom", "MySqlOptions", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``mysql``."""
    return Driver(options=MySqlOptions, create=MySqlDialect, insert=portable_insert(MySqlIdiom()))
