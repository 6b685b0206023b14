"""The dialect 'h2' of outbox."""

from outbox_api import Dialect, Driver, hookimpl
from outbox_api.portable import portable_insert

from outbox_h2.dialect import H2Dialect, H2Options
from outbox_h2.idiom import H2Idiom

__all__ = ["H2Dialect", "H2Idiom", "H2Options", "outbox_dialect"]


@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    """Offers the driver ``h2``."""
    insert = portable_insert(H2Idiom())
    return Driver(options=H2Options, create=H2Dialect, insert=insert)
