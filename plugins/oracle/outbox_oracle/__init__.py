"""Oracle dialect of outbox."""

from outbox_api import Dialect, Driver, hookimpl
from outbox_api.portable import portable_insert

from outbox_oracle.dialect import OracleDialect
from outbox_oracle.idiom import OracleIdiom
from outbox_oracle.options import OracleOptions, table_name

__all__ = ["OracleDialect", "OracleIdiom", "OracleOptions", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``oracle``."""
    insert = portable_insert(OracleIdiom(), table_name)
    return Driver(options=OracleOptions, create=OracleDialect, insert=insert)
