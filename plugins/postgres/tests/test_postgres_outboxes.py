"""Outboxes are found in all schemas, as SQL folds names."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from outbox_postgres.dialect import PostgresDialect

from .outbox_hands import Outbox, ask, until

COLUMNS = "kafka_topic text, kafka_key text, leader_id uuid"
TENANTS = ["tenant_a.outbox", "tenant_b.outbox", '"tenant-C".outbox']


@pytest.fixture
def tenants(outbox: Outbox) -> Outbox:
    """Outboxes in several schemas, beside tables that are none."""
    for name in (*TENANTS, "other.outbox", 'other."Out.box""*"'):
        outbox.admin.execute(f"CREATE SCHEMA IF NOT EXISTS {name.partition('.')[0]}")
        PostgresDialect(replace(outbox.options, table=name)).create()
    for statement in (
        "CREATE SCHEMA tenant_d",
        "CREATE VIEW tenant_d.outbox AS SELECT * FROM tenant_a.outbox",
        "CREATE TABLE tenant_d.outbox_old (kafka_topic text, kafka_key text, kafka_value text)",
        f"CREATE TABLE tenant_d.outbox_parts (id bigint, {COLUMNS}) PARTITION BY RANGE (id)",
        "CREATE TABLE tenant_d.outbox_part PARTITION OF tenant_d.outbox_parts FOR VALUES FROM (1) TO (9)",
        f"CREATE TEMPORARY TABLE outbox_soon_gone ({COLUMNS})",
    ):
        outbox.admin.execute(statement)
    return outbox


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("tenant_*.outbox", TENANTS[:2]),
        ("Tenant_A.OUTBOX", TENANTS[:1]),
        ('"tenant*".outbox', [TENANTS[2], *TENANTS[:2]]),
        ('"Tenant*".outbox', []),
        ("*.outbox", [TENANTS[2], "other.outbox", "public.outbox", *TENANTS[:2]]),
        ("other.*", ['other."Out.box""*"', "other.outbox"]),
        ("tenant_d.*", ["tenant_d.outbox_parts"]),
        ("*", ["outbox"]),
        ("out*", ["outbox"]),
        ("*.outbox_soon*", []),
        ("nowhere.*", []),
    ],
)
def test_tables_are_found_where_the_pattern_says(tenants: Outbox, pattern: str, found: list[str]) -> None:
    assert tenants.dialect.find_outboxes(pattern) == found


@pytest.mark.parametrize(("owners", "adopted"), [((), False), (("reader_*",), True), (("read",), False)])
def test_a_table_of_a_role_that_may_only_create_is_not_adopted(
    outbox: Outbox, user: tuple[str, str], owners: tuple[str, ...], adopted: bool
) -> None:
    name, dsn = user
    outbox.admin.execute(f'GRANT CREATE ON DATABASE "{outbox.admin.info.dbname}" TO {name}'.encode())
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA tenant_evil")
        connection.execute(f"CREATE TABLE tenant_evil.outbox (id bigint PRIMARY KEY, {COLUMNS})".encode())
    harvester = PostgresDialect(replace(outbox.options, owners=owners))
    assert harvester.find_outboxes("tenant_*.outbox") == ["tenant_evil.outbox"] * adopted
    own = PostgresDialect(replace(outbox.options, data_source=dsn))
    assert own.find_outboxes("tenant_*.outbox") == ["tenant_evil.outbox"]


def test_what_is_found_can_be_connected_to(tenants: Outbox) -> None:
    found = tenants.dialect.find_outboxes("other.*")
    for name in found:
        made = PostgresDialect(replace(tenants.options, table=name)).connect()
        assert made.bump(1, "test") > 0
        made.close()
    assert len(found) == 2


def test_nothing_stays_connected(tenants: Outbox) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outbox' AND datname = %s"
    tenants.dialect.find_outboxes("*")
    until(lambda: ask(tenants.admin, count, tenants.admin.info.dbname) == 0)
