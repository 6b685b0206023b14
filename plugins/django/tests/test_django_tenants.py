"""A record is in its tenant's outbox where the engine chooses the schema, and a test's ban is obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections, transaction
from outbox_api import Record, Seam, find
from outbox_api.application.inbox import Inbox
from outbox_django import stash, stash_many

TENANTS = ("tenant_a", "tenant_b", "tenant_c")
ENGINES = ("django_tenants.postgresql_backend", "django.db.backends.postgresql")


@pytest.fixture(params=ENGINES, ids=["django-tenants", "a wrapper"])
def database(request: pytest.FixtureRequest, postgres_dsn: str) -> dict[str, Any]:
    """A database with an outbox and an inbox for each tenant, in a schema of its own."""
    driver = find(Seam.DIALECT, "postgres")
    with psycopg.connect(postgres_dsn) as connection:
        for tenant in TENANTS:
            connection.execute(f"CREATE SCHEMA {tenant}")
            connection.execute(f"CREATE TABLE {tenant}.orders (number INTEGER)")
            made = driver.create(driver.options(data_source=postgres_dsn, table=f"{tenant}.outbox"))
            for statement in (*made.ddl(), *Inbox("billing", table=f"{tenant}.outbox_inbox").ddl()):
                connection.execute(statement)
        named = connection.info
        return {
            "ENGINE": request.param,
            "NAME": named.dbname,
            "HOST": named.host,
            "PORT": str(named.port),
            "USER": named.user,
            "PASSWORD": named.password,
        }


@pytest.fixture
def choose(project: None) -> Iterator[Any]:
    """Chooses the tenant of the requests that follow."""
    connection, chosen = connections["default"], [""]

    def path(execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        context["cursor"].cursor.execute(f"SET search_path = {chosen[0]}")
        return execute(sql, params, many, context)

    if hasattr(connection, "set_schema"):
        yield lambda tenant: connection.set_schema(tenant, include_public=False)
        return
    with connection.execute_wrapper(path):
        yield lambda tenant: chosen.__setitem__(0, tenant)


def test_a_stash_that_is_the_first_statement_of_a_request_is_the_tenants(choose: Any) -> None:
    inbox, seen = Inbox("billing"), set()
    for number, tenant in enumerate(TENANTS * 3 + TENANTS[::-1]):
        choose(tenant)
        with transaction.atomic():
            stash(Record("orders", tenant, str(number)))
            stash_many([Record("orders", tenant, str(number))] * 2)
            assert inbox.first(connections["default"], "shop:1") == (tenant not in seen)
            seen.add(tenant)
        with connections["default"].cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", (number,))
    for tenant in TENANTS:
        choose(tenant)
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT number FROM orders ORDER BY number")
            numbers = [str(number) for (number,) in cursor.fetchall()]
            cursor.execute("SELECT kafka_key, kafka_value FROM outbox ORDER BY id")
            assert cursor.fetchall() == [(tenant, number) for number in numbers for _ in range(3)]
