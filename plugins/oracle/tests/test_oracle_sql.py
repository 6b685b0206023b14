"""Every statement that the dialect can make is Oracle's, as far as an independent parser can tell."""

from __future__ import annotations

import pytest
from outbox_api import ColumnIs, Origin
from outbox_api.portable.check import trials
from outbox_api.portable.inbox import InboxStatements
from outbox_api.portable.intake_table import extra_columns
from outbox_api.portable.notes import schema_query
from outbox_api.portable.origin_columns import OriginColumns
from outbox_api.portable.statements import Statements
from outbox_api.support.statement import Statement, Style
from outbox_oracle import check, outbox_dialect
from outbox_oracle.dialect import OracleDialect, OracleSession
from outbox_oracle.options import OracleOptions
from outbox_testkit.scripted import intake_statements, portable_statements
from sqlglot import exp

from .fake_oracle import RESERVED, FakeOracle, parsed, placeholders

pytestmark = pytest.mark.slow

OPTIONS = OracleOptions(table='shop."out box"', fence_table="fence")


INDEXES = {"cluster_id": "by_cluster"}


def statements() -> dict[str, str]:
    """Everything that is sent, by a name for it; braces are outbox-api's way to write parameters."""
    idiom = OracleDialect.idiom
    eligible = (ColumnIs("cluster_id", 1), ColumnIs("cluster_id", 2, 1.5, "arrived"))
    made = Statements(idiom, OPTIONS.tables, eligible, indexes=INDEXES)
    session = OracleSession(FakeOracle(), idiom, "here")
    found = dict(portable_statements(made, "{id0}", eligible))
    found |= {f"intake {n}": sql for n, sql in intake_statements(session, OPTIONS.outbox, "{id0}").items()}
    found["extras"] = extra_columns('"OUTBOX"')[0]
    insert = outbox_dialect().insert
    assert insert is not None
    found["insert"] = insert(OPTIONS.table, {}).sql
    found["insert of a cluster"] = insert(OPTIONS.table, {"cluster_id": 2}).sql
    inbox = InboxStatements(idiom, OPTIONS.outbox)
    found |= {"inbox first": inbox.first, "inbox forget": inbox.forget}
    found["schema"] = schema_query(idiom, OPTIONS.fence)
    found["last id"] = idiom.last_id
    found |= {name: getattr(check, name) for name in ("CHARACTER_SET", "DATABASE", "IDS")}
    return found


def written(sql: str) -> str:
    return Statement(sql, Style.NAMED).text


@pytest.mark.parametrize("name", statements())
def test_a_statement_is_parsed_and_names_no_reserved_word(name: str) -> None:
    sql = written(statements()[name])
    tree = parsed(sql)
    plain = {each.name.upper() for each in tree.find_all(exp.Identifier) if not each.quoted}
    assert not plain & RESERVED
    assert not {bind.upper() for bind in placeholders(sql)} & RESERVED


@pytest.mark.parametrize("value_type", ["text", "bytes"])
def test_the_ddl_is_parsed(value_type: str) -> None:
    dialect = OracleDialect(OracleOptions(value_type=value_type))
    tables = [parsed(statement) for statement in dialect.ddl()]
    assert [table.name for tree in tables if (table := tree.find(exp.Table))] == [
        "OUTBOX",
        "OUTBOX_FENCE",
        "OUTBOX_FENCE_NOTES",
        "OUTBOX_FENCE_LEASE",
        "OUTBOX_FENCE_MEMBERS",
        "OUTBOX_DEAD_LETTERS",
        *["OUTBOX_JOURNAL"] * 2,  # and its index
        "OUTBOX_FENCE_HISTORY",
        "OUTBOX_FENCE_NOTES",
    ]
    columns = {each.name.lower(): each for each in tables[0].find_all(exp.ColumnDef)}
    kind = columns["kafka_value"].kind
    assert kind is not None
    assert kind.sql("oracle") == ("BLOB" if value_type == "bytes" else "CLOB")


def test_the_trials_of_privileges_are_parsed_and_change_nothing() -> None:
    for _, _, statement in trials(OracleDialect.idiom, OPTIONS.tables):
        where = parsed(statement).find(exp.Where)
        assert where is not None
        assert where.sql() == "WHERE 1 = 0"


def test_the_columns_of_several_clusters_are_added() -> None:
    origin = Origin(column="cluster_id", own=2, known=(1, 2), existing=1, arrival="arrived")
    dialect = OracleDialect(OracleOptions(table="shop.outbox", origin=origin))
    new = dialect.ddl()[1:5]
    rest = [
        'ALTER TABLE "SHOP"."OUTBOX" ADD "ARRIVED" TIMESTAMP(6) WITH TIME ZONE',
        'ALTER TABLE "SHOP"."OUTBOX" MODIFY "ARRIVED" DEFAULT SYSTIMESTAMP',
        'CREATE INDEX "SHOP"."OUTBOX_CLUSTER_ID_ID" ON "SHOP"."OUTBOX" ("CLUSTER_ID", "ID")',
    ]
    assert new == ['ALTER TABLE "SHOP"."OUTBOX" ADD "CLUSTER_ID" INTEGER DEFAULT 2 NOT NULL', *rest]
    columns = dialect.origin_columns()
    assert columns is not None
    existing = columns.missing(OracleSession(FakeOracle(), dialect.idiom, "here"))
    assert [list(each) for each in existing] == [
        [
            'ALTER TABLE "SHOP"."OUTBOX" ADD "CLUSTER_ID" INTEGER DEFAULT 1 NOT NULL',
            'ALTER TABLE "SHOP"."OUTBOX" MODIFY "CLUSTER_ID" DEFAULT 2',
        ],
        rest[:2],
        rest[2:],
    ]
    for statement in new:
        if " ADD " in statement:  # the parser knows neither MODIFY nor the schema of an index
            parsed(statement)


def test_the_default_of_the_cluster_is_read_as_the_dictionary_has_it() -> None:
    origin = Origin(column="cluster_id", own=2, known=(1, 2))
    for text, default in (("2", 2), ("3 ", 3), ("'2'", 2), ("NULL", None), ("seq.nextval2", None)):
        fake = FakeOracle({"all_tab_columns": [("CLUSTER_ID", text), ("LANE", "7")]})
        columns = OriginColumns(OracleDialect.idiom, OPTIONS.outbox, origin)
        assert columns.default(OracleSession(fake, OracleDialect.idiom, "here")) == default
        ((_, place), *_) = fake.log
        assert place == {"owner": "SHOP", "wanted": "out box"}


def test_no_query_locks_rows_and_limits_them() -> None:
    locking = [sql for sql in statements().values() if "FOR UPDATE" in sql]
    assert len(locking) == 6
    assert not [sql for sql in locking if "ORDER BY" in sql or "FETCH FIRST" in sql]


def test_names_fold_as_in_oracle() -> None:
    sql = statements()
    assert 'UPDATE "SHOP"."out box" SET' in sql["claim"]
    assert 'FROM "SHOP"."FENCE"' in sql["hold"]
    assert '"CLUSTER_ID" = {eligible}' in sql["choose 1 without nothing"]
    assert 'INTO "SHOP"."out box"' in sql["insert"]
