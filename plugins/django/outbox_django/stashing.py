"""Writes records into the outbox of the database that a transaction is in."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import DEFAULT_DB_ALIAS, connections
from outbox_api import Record

from outbox_django.outboxes import outbox_of


def stash(record: Record, using: str = DEFAULT_DB_ALIAS) -> None:
    """Writes one record, in the ``transaction.atomic`` that the database is in; see :func:`stash_many`."""
    stash_many((record,), using)


def stash_many(records: Iterable[Record], using: str = DEFAULT_DB_ALIAS) -> None:
    """Writes records in the order given, in the ``transaction.atomic`` that the database is in.

    They are committed with the other changes of the block, or not at all.

    Args:
        records: What to publish once the transaction is committed.
        using: The database's alias.

    Raises:
        ValueError: The database is in no transaction: nothing would be atomic.
        RecordError: A record cannot be written; the transaction is as it was.
        ConfigError: The database has no outbox.
        PluginError: The dialect of the database is not installed.
        django.db.Error: The database refuses.
    """
    outbox_of(using).stasher.stash_many(connections[using], records)
