"""What is known of a connection without importing what made it, and what every writer asks of it.

An object of a library can only be there when its library has been imported, so ``sys.modules`` tells all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_IDLE = 0  # libpq's PQTRANS_IDLE, which psycopg and psycopg2 share
_IN_TRANSACTION = 1  # MySQL's SERVER_STATUS_IN_TRANS, as PyMySQL and its asynchronous kin show it


def is_a(instance: object, module: str, *names: str) -> bool:
    """Returns whether an object is of one of the classes of a module."""
    loaded = sys.modules.get(module)
    kinds = tuple(kind for name in names if isinstance(kind := getattr(loaded, name, None), type))
    return isinstance(instance, kinds)


def require_transaction(connection: Any) -> None:
    """Makes sure that a record would share its fate with other changes, where the driver lets it be seen.

    Raises:
        ValueError: The connection commits each statement by itself.
    """
    alone = False
    if getattr(connection, "autocommit", False) is True:
        info = getattr(connection, "info", None)
        alone = getattr(info, "transaction_status", None) == _IDLE and not getattr(info, "pipeline_status", 0)
        # MySQL Connector's, and sqlite3's.
        alone = alone or getattr(connection, "in_transaction", None) is False
    elif hasattr(connection, "get_autocommit") and hasattr(connection, "server_status"):
        alone = connection.get_autocommit() and not connection.server_status & _IN_TRANSACTION
    elif hasattr(connection, "in_transaction") and hasattr(connection, "isolation_level"):
        # sqlite3, where no isolation level means that nothing begins a transaction by itself.
        alone = connection.isolation_level is None and not connection.in_transaction
    if alone:
        refuse_autocommit()


def refuse_autocommit() -> NoReturn:
    """Raises the error of a connection that commits each statement by itself."""
    raise ValueError(
        "the connection is in autocommit mode with no transaction open, so the record would not be "
        "atomic with anything: begin a transaction (with psycopg: with connection.transaction(): …; with "
        "Django: with transaction.atomic(): …), or switch autocommit off"
    )


@contextmanager
def unprepared(connection: Any) -> Iterator[None]:
    """Has psycopg prepare nothing: a pooler in transaction mode would look for it in another's session."""
    threshold = getattr(connection, "prepare_threshold", None)
    if threshold is None:
        yield
        return
    connection.prepare_threshold = None
    try:
        yield
    finally:
        connection.prepare_threshold = threshold
