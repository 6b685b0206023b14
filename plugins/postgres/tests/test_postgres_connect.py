"""Connecting and creating, and every way in which that fails."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from outbox_api import OLDEST, SCHEMA, AccessDenied, ColumnIs, DriverError, Schema
from outbox_servers.services import Postgres
from psycopg.conninfo import make_conninfo

from .outbox_hands import BESIDE, MakeOutbox, Outbox, ask
from .ways import WAYS


def refusal(box: Outbox, **how: Any) -> DriverError:
    with pytest.raises(DriverError) as caught:
        box.connect(**how)
    return caught.value


def test_creates_what_is_missing_and_leaves_the_rest_alone(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    assert outbox.dialect.create() == []
    other = make_outbox(table="second", fence_table="second_fence", dead_letter_table="second_letters")
    beside = ["second_fence", "second_fence_notes", "second_fence_lease", "second_fence_members"]
    assert other.dialect.create() == ["second", *beside, "second_letters", "second_fence_history"]
    other.admin.execute("DROP TABLE second_fence, second_letters")
    other.write()
    assert other.dialect.create() == ["second_fence", "second_letters"]
    assert len(other.lead().mark()) == 1


def test_the_ddl_creates_the_same_as_create_does(make_outbox: MakeOutbox) -> None:
    box = make_outbox(table="app.outbox")
    box.admin.execute("CREATE SCHEMA app")
    for statement in box.dialect.ddl():
        box.admin.execute(statement)
    assert box.dialect.create() == []
    box.write()
    assert len(box.lead().mark()) == 1


def test_several_processes_create_at_the_same_moment(make_outbox: MakeOutbox) -> None:
    boxes = [make_outbox() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        created = list(pool.map(lambda box: box.dialect.create(), boxes))
    assert sorted(itertools.chain(*created)) == sorted(["outbox", *BESIDE])


TABLES = """
SELECT array_agg(relname::text ORDER BY relname) FROM pg_class
WHERE relname ~ '^outbox' AND relkind IN ('r', 'S')
"""


@pytest.mark.parametrize("missing", ["TABLE outbox_fence", "TABLE outbox_dead_letters"])
@pytest.mark.parametrize("way", WAYS)
def test_connecting_creates_nothing_and_says_what_does(outbox: Outbox, way: str, missing: str) -> None:
    outbox.admin.execute(f"DROP {missing}")
    before = ask(outbox.admin, TABLES)
    with pytest.raises(
        DriverError, match=r"there is no .*: run 'outbox init', and if another user does: GRANT"
    ) as caught:
        WAYS[way](outbox.dialect)
    assert not caught.value.retryable
    outbox.dialect.check()
    assert ask(outbox.admin, TABLES) == before
    assert outbox.dialect.create() == [missing.removeprefix("TABLE ")]
    WAYS[way](outbox.dialect).close()


def test_an_outbox_of_goharvest_needs_init_and_nothing_else(outbox: Outbox) -> None:
    outbox.admin.execute(f"DROP TABLE {', '.join(BESIDE)}; DROP SEQUENCE outbox_lease".encode())
    outbox.fill(2)
    with pytest.raises(DriverError, match="there is no fence table"):
        outbox.dialect.migrations()
    assert outbox.dialect.create() == BESIDE
    assert outbox.dialect.migrations() == []
    assert outbox.dialect.schema() == Schema(SCHEMA, OLDEST)
    assert len(outbox.lead().mark()) == 2


def test_the_session_is_named_and_bounded(outbox: Outbox) -> None:
    connection = outbox.connect()._connection
    shown = {
        name: ask(connection, f"SHOW {name}")
        for name in ("application_name", "lock_timeout", "statement_timeout", "default_transaction_isolation")
    }
    assert list(shown.values()) == ["outbox", "5s", "30s", "read committed"]


def test_marks_do_not_depend_on_the_isolation_level_of_the_role(outbox: Outbox) -> None:
    outbox.set_default("default_transaction_isolation", "serializable")
    outbox.fill(1)
    assert len(outbox.lead().mark()) == 1


def test_a_missing_database(postgres_server: Postgres, make_outbox: MakeOutbox) -> None:
    dialect = make_outbox(make_conninfo(postgres_server.dsn, dbname="nowhere")).dialect
    with pytest.raises(DriverError, match='database "nowhere" does not exist; create it: CREATE') as caught:
        dialect.create()
    assert not caught.value.retryable


def test_a_missing_table(make_outbox: MakeOutbox) -> None:
    error = refusal(make_outbox(table="nowhere"))
    assert not error.retryable
    assert "no table 'nowhere' in the search path (public)" in str(error)
    assert "outbox init" in str(error)
    assert "no table 'outbox' in schema 'nowhere'" in str(refusal(make_outbox(table="nowhere.outbox")))


def test_something_that_is_no_table(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    outbox.admin.execute("CREATE VIEW looks AS SELECT * FROM outbox")
    assert "not a table but a view" in str(refusal(make_outbox(table="looks")))


def test_missing_columns_are_all_named(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox DROP COLUMN leader_id, DROP COLUMN kafka_header_values")
    error = refusal(outbox)
    assert not error.retryable
    assert 'ALTER TABLE "public"."outbox" ADD COLUMN leader_id uuid' in str(error)
    assert "'kafka_header_values' is missing" in str(error)


def test_a_missing_id(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox DROP COLUMN id")
    assert "column 'id' is missing" in str(refusal(outbox))


@pytest.mark.parametrize(
    ("column", "type_", "found"),
    [
        ("leader_id", "text", "has type text and must be uuid"),
        ("kafka_value", "int USING NULL", "has type integer and must be varchar, text or bytea"),
        ("kafka_header_keys", "jsonb USING NULL", "has type jsonb and must be text[]"),
        ("kafka_key", "bytea USING ''", "has type bytea and must be varchar or text"),
    ],
)
def test_a_column_of_the_wrong_type(outbox: Outbox, column: str, type_: str, found: str) -> None:
    outbox.admin.execute(
        f"ALTER TABLE outbox ALTER COLUMN {column} DROP DEFAULT, ALTER COLUMN {column} DROP NOT NULL, "
        f"ALTER COLUMN {column} TYPE {type_}"
    )
    error = refusal(outbox)
    assert not error.retryable
    assert f"column '{column}' {found}" in str(error)


def test_domains_count_as_what_they_are_made_of(outbox: Outbox) -> None:
    outbox.admin.execute("CREATE DOMAIN short AS varchar(50)")
    outbox.admin.execute("ALTER TABLE outbox ALTER COLUMN kafka_key TYPE short")
    outbox.write("k")
    assert [record.key for record in outbox.lead().mark()] == ["k"]


def test_a_column_that_the_affinity_asks_for(outbox: Outbox) -> None:
    assert "column 'cluster', which the affinity asks for" in str(
        refusal(outbox, eligible=[ColumnIs("cluster", "eu")])
    )


def test_a_read_only_user_is_told_what_to_grant(
    make_outbox: MakeOutbox, outbox: Outbox, user: tuple[str, str]
) -> None:
    name, dsn = user
    outbox.admin.execute(f"GRANT SELECT ON outbox TO {name}")
    error = refusal(make_outbox(dsn))
    assert not error.retryable
    assert f'GRANT UPDATE, DELETE ON "public"."outbox" TO "{name}"' in str(error)
    outbox.admin.execute(f"GRANT UPDATE (leader_id), DELETE ON outbox TO {name}")
    error = refusal(make_outbox(dsn))
    assert f'GRANT SELECT, INSERT, UPDATE ON "public"."outbox_fence" TO "{name}"' in str(error)
    assert f'GRANT SELECT, INSERT, UPDATE, DELETE ON "public"."outbox_dead_letters" TO "{name}"' in str(error)
    outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE ON outbox_fence, outbox_fence_notes TO {name}")
    outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_dead_letters TO {name}")
    outbox.fill(2)
    hand = make_outbox(dsn).lead()
    assert hand.purge(*[record.id for record in hand.mark()]) == 2


def test_who_may_not_create_is_told_what_to_run(
    make_outbox: MakeOutbox, outbox: Outbox, user: tuple[str, str]
) -> None:
    _, dsn = user
    outbox.admin.execute("REVOKE CREATE ON SCHEMA public FROM public")
    with pytest.raises(AccessDenied, match="let somebody who may run this: CREATE TABLE") as caught:
        make_outbox(dsn, table="third").dialect.create()
    outbox.admin.execute(str(caught.value).split("may run this: ")[1].encode())
    third = make_outbox(table="third")
    assert third.dialect.create() == []
    assert third.dialect.migrations() == []


def test_another_table_in_the_place_of_the_fence(outbox: Outbox) -> None:
    outbox.admin.execute("DROP TABLE outbox_fence; CREATE TABLE outbox_fence (name text, lane int)")
    assert 'fence table "public"."outbox_fence" lacks the columns epoch, heartbeat_at' in str(refusal(outbox))


def test_another_table_in_the_place_of_the_dead_letters(outbox: Outbox) -> None:
    outbox.admin.execute("DROP TABLE outbox_dead_letters; CREATE TABLE outbox_dead_letters (name text)")
    assert "lacks the columns attempts, id" in str(refusal(outbox))
    assert "set deadLetterTable to another name" in str(refusal(outbox))


def test_works_without_prepared_statements(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    outbox.fill(20)
    hand = make_outbox(prepare=False).lead()
    for _ in range(10):
        assert hand.purge(*[record.id for record in hand.mark(2)]) == 2
    assert hand.table._connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_each_statement_is_prepared_once_whatever_the_size_of_its_numbers(outbox: Outbox) -> None:
    outbox.fill(50)
    hand = outbox.lead()
    for limit in (1, 40_000, 3_000_000_000):
        hand.purge(*[record.id for record in hand.mark(limit)])
    prepared = hand.table._connection.execute(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%chosen%'"
    ).fetchone()
    assert prepared == (1,)


def test_a_database_without_an_encoding_is_refused(
    postgres_server: Postgres, make_outbox: MakeOutbox
) -> None:
    name = f"raw_{uuid4().hex}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    dialect = make_outbox(make_conninfo(postgres_server.dsn, dbname=name)).dialect
    with pytest.raises(DriverError, match=r"has no encoding \(SQL_ASCII\)") as caught:
        dialect.create()
    assert not caught.value.retryable
    (found,) = [each for each in dialect.check() if each.subject == "connection"]
    assert "SQL_ASCII" in found.message
    postgres_server.drop_database(name)
