"""Every statement that the dialect can make is SQL Server's, as far as an independent parser can tell."""

from __future__ import annotations

import pytest
import sqlglot
from outbox_api import ColumnIs, Origin
from outbox_api.portable.inbox import InboxStatements
from outbox_api.portable.intake_table import extra_columns
from outbox_api.portable.notes import schema_query
from outbox_api.portable.origin_columns import OriginColumns
from outbox_api.portable.statements import UNCLAIMED, Statements
from outbox_api.support.statement import Statement, Style
from outbox_sqlserver import check, outbox_dialect
from outbox_sqlserver.connection import settings
from outbox_sqlserver.dialect import SqlServerDialect, SqlServerSession
from outbox_sqlserver.idiom import LISTED_IDS
from outbox_sqlserver.options import SqlServerOptions
from outbox_testkit.scripted import intake_statements, portable_statements
from sqlglot import exp

from .fake_sqlserver import RESERVED, FakeSqlServer, parsed

OPTIONS = SqlServerOptions(table="shop.[out]box]".replace("]b", "_b"), fence_table="fence")
BY_IDS = ("claim", "purge", "reset", "forget_letter", "drop_letters", "skip_gone", "remove", "intake remove")


INDEXES = {"cluster_id": "by_cluster"}


def statements() -> dict[str, str]:
    """Everything that is sent, by a name for it; braces are outbox-api's way to write parameters."""
    idiom = SqlServerDialect.idiom
    eligible = (ColumnIs("cluster_id", 1), ColumnIs("cluster_id", 2, 1.5, "arrived"))
    made = Statements(idiom, OPTIONS.tables, eligible, indexes=INDEXES)
    session = SqlServerSession(FakeSqlServer(), idiom, "here")
    found = dict(portable_statements(made, LISTED_IDS, eligible))
    taken_in = intake_statements(session, OPTIONS.outbox, LISTED_IDS)
    found |= {f"intake {name}": sql for name, sql in taken_in.items()}
    wide = Statements(idiom, OPTIONS.tables, extras=["kafka_timestamp"])
    found["choose with extras"] = wide.choose(2, (UNCLAIMED,), sized=True)
    insert = outbox_dialect().insert
    assert insert is not None
    found["insert"] = insert(OPTIONS.table, {}).sql
    found["insert of a cluster"] = insert(OPTIONS.table, {"cluster_id": 2}).sql
    inbox = InboxStatements(idiom, OPTIONS.outbox)
    found |= {"inbox first": inbox.first, "inbox forget": inbox.forget}
    found["schema"] = schema_query(idiom, OPTIONS.fence)
    found["last id"] = idiom.last_id
    return found | {name: getattr(check, name) for name in ("SERVER", "DATABASE")}


def written(sql: str) -> str:
    return Statement(sql, Style.SQLALCHEMY).text.replace(":", "@").replace("\\", "")


@pytest.mark.parametrize("name", statements())
def test_a_statement_is_parsed_and_names_no_reserved_word(name: str) -> None:
    tree = parsed(written(statements()[name]))
    plain = {each.name.upper() for each in tree.find_all(exp.Identifier) if not each.quoted}
    assert not plain & RESERVED


@pytest.mark.parametrize("value_type", ["text", "bytes"])
def test_the_ddl_is_parsed(value_type: str) -> None:
    dialect = SqlServerDialect(SqlServerOptions(value_type=value_type))
    *tables, noted = dialect.ddl()
    newline = "\n"
    for (table, batch), guarded in zip(dialect.tables(dialect.options.tables).items(), tables, strict=True):
        create = parsed(batch[0])
        assert isinstance(create, exp.Create)
        assert create.find(exp.Table) == exp.to_table(f"[{table}]", dialect="tsql")
        assert guarded == f"IF OBJECT_ID(N'[{table}]', N'U') IS NULL\nBEGIN\n{newline.join(batch)}\nEND"
    assert ("VARBINARY(MAX)" in dialect.ddl()[0]) == (value_type == "bytes")
    parsed(extra_columns("[outbox]")[0])
    name = "SCHEMA_NAME() + N'.outbox'"
    there, insert = noted.split("\n")
    assert there == f"IF NOT EXISTS (SELECT 1 FROM [outbox_fence_notes] WHERE name = {name})"
    assert isinstance(parsed(insert), exp.Insert)
    assert f"VALUES ({name}, 1" in insert


def test_what_changes_rows_of_an_outbox_looks_them_up() -> None:
    sql = statements()
    for name in BY_IDS:
        assert " INNER LOOP JOIN [" in sql[name], name
        assert "WITH (ROWLOCK)" in sql[name]
    assert "WITH (UPDLOCK, READPAST, ROWLOCK) WHERE" in sql["intake free"]
    # What passes rows of others is never used: it would wait for what is not committed.
    assert "remove 1 runs" not in sql


@pytest.mark.parametrize("name", ["choose 8 without keys", "choose sized 8 without ids"])
def test_rows_are_chosen_in_order_and_without_locks(name: str) -> None:
    tree = sqlglot.parse_one(written(statements()[name]), read="tsql")
    (hinted,) = [each for each in tree.find_all(exp.Table) if each.args.get("hints")]
    assert "WITH (INDEX([by_cluster]))" in hinted.sql("tsql")
    assert tree.args["order"] is not None


def test_the_columns_of_several_clusters_are_added() -> None:
    origin = Origin(column="cluster_id", own=2, known=(1, 2), existing=1, arrival="it's arrived")
    dialect = SqlServerDialect(SqlServerOptions(origin=origin))
    new = dialect.ddl()[0].splitlines()
    assert "ALTER TABLE [outbox] ADD [cluster_id] INTEGER DEFAULT 2 NOT NULL" in new
    assert "ALTER TABLE [outbox] ADD [it's arrived] DATETIME2(6)" in new
    assert "CREATE INDEX [outbox_cluster_id_id] ON [outbox] ([cluster_id], [id])" in new
    session, columns = SqlServerSession(FakeSqlServer(), dialect.idiom, "here"), dialect.origin_columns()
    assert columns is not None
    (add, right), (_, arrived), (index,) = columns.missing(session)
    assert add == "ALTER TABLE [outbox] ADD [cluster_id] INTEGER DEFAULT 1 NOT NULL"
    assert right.endswith("EXEC(@former);\nALTER TABLE [outbox] ADD DEFAULT 2 FOR [cluster_id]")
    assert "= N'it''s arrived');" in arrived
    assert arrived.endswith("ADD DEFAULT SYSUTCDATETIME() FOR [it's arrived]")
    assert index == "CREATE INDEX [outbox_cluster_id_id] ON [outbox] ([cluster_id], [id])"


def test_the_default_of_the_cluster_is_read_as_the_catalogue_has_it() -> None:
    columns = OriginColumns(SqlServerDialect.idiom, OPTIONS.outbox, Origin(column="c", own=2, known=(1, 2)))
    for text, default in (("((2))", 2), ("('3')", 3), ("(NULL)", None)):
        fake = FakeSqlServer({"default_constraints": [("c", text)]})
        assert columns.default(SqlServerSession(fake, SqlServerDialect.idiom, "here")) == default


def test_a_settings_batch_is_parsed() -> None:
    batch = settings(SqlServerOptions())
    assert len(sqlglot.parse(batch, read="tsql")) == 7
    assert "LOCK_TIMEOUT 5000" in batch
