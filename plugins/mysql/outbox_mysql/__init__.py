"""MySQL and MariaDB dialect of outbox."""

from outbox_sdk import Dialect, Driver, Record, hookimpl
from outbox_sdk.portable import portable_insert

from outbox_mysql.dialect import MySqlDialect
from outbox_mysql.idiom import MySqlIdiom
from outbox_mysql.options import MySqlOptions
from outbox_mysql.tables import KEY_BYTES

__all__ = ["MySqlDialect", "MySqlIdiom", "MySqlOptions", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``mysql``."""
    return Driver(options=MySqlOptions, create=MySqlDialect, insert=portable_insert(MySqlIdiom(), _refuse))


def _refuse(record: Record) -> str:
    """Says why an outbox of ours cannot hold a record, or nothing."""
    return f"a key has at most {KEY_BYTES:,} bytes" if len(record.key.encode()) > KEY_BYTES else ""
