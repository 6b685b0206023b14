"""Records written over Django's connections and cursors, whatever the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from django.db import connections, transaction
from django.utils.connection import ConnectionProxy
from outbox_api import Record, Seam, Stasher, find
from psycopg.conninfo import conninfo_to_dict

RECORDS = [Record("orders", "k", f"100% é {number}", (("h", "1"),)) for number in range(3)]


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Stasher]]:
    """An outbox: Django's alias of its database, and a stasher."""
    driver: str = request.param
    if driver == "sqlite":
        source = str(tmp_path / "shop.db")
        database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": source}
    else:
        source = request.getfixturevalue("postgres_dsn")
        named = conninfo_to_dict(source)
        keys = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
        database = {"ENGINE": "django.db.backends.postgresql"}
        database |= {name: named[key] for name, key in keys.items() if key in named}
    dialect = find(Seam.DIALECT, driver)
    dialect.create(dialect.options(data_source=source)).create()
    if not settings.configured:
        settings.configure(LOGGING_CONFIG=None)
        django.setup()
    connections.settings[driver] = connections.configure_settings({"default": {}, driver: database})[driver]
    yield driver, Stasher("outbox", driver)
    connections[driver].close()
    del connections[driver], connections.settings[driver]


def values(alias: str) -> list[str]:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT kafka_value FROM outbox ORDER BY id")
        return [value for (value,) in cursor.fetchall()]


def test_a_record_is_written_with_the_atomic_block_and_not_without(shop: tuple[str, Stasher]) -> None:
    alias, stasher = shop
    proxy = ConnectionProxy(connections, alias)  # what django.db.connection is
    with transaction.atomic(using=alias):
        stasher.stash(proxy, RECORDS[0])
        stasher.stash_many(connections[alias], RECORDS[1:])
    assert values(alias) == [record.value for record in RECORDS]
    with transaction.atomic(using=alias), proxy.cursor() as cursor:
        stasher.stash(cursor, RECORDS[0])
        transaction.set_rollback(True, using=alias)
    assert len(values(alias)) == 3


def test_a_savepoint_takes_its_records_with_it(shop: tuple[str, Stasher]) -> None:
    alias, stasher = shop
    with transaction.atomic(using=alias):
        with transaction.atomic(using=alias):
            stasher.stash(connections[alias], RECORDS[0])
            transaction.set_rollback(True, using=alias)
        with connections[alias].cursor() as cursor:
            stasher.stash(cursor, RECORDS[1])
    assert values(alias) == [RECORDS[1].value]


def test_outside_of_a_transaction_nothing_is_written(shop: tuple[str, Stasher]) -> None:
    alias, stasher = shop
    with connections[alias].cursor() as cursor:
        for connection in (ConnectionProxy(connections, alias), connections[alias], cursor):
            with pytest.raises(ValueError, match="atomic"):
                stasher.stash(connection, RECORDS[0])
    assert values(alias) == []
