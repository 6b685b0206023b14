"""A connection that asks of the dialect what python-oracledb and Oracle ask, and answers by a script.

It is no Oracle. What it holds a statement to is documented:

* python-oracledb, "Using Bind Variables" and "Batch Statement Execution": every placeholder has a value and
  every value a placeholder, array binds are lists of equal shapes, and ``rowcount`` is that of the whole
  array. Its errors are made by the driver's own code, with the driver's own classes.
* Oracle's SQL Language Reference: an empty text is null; a list holds at most 1,000 expressions; FOR UPDATE
  goes with no row limit and no order (ORA-02014); no bind has a reserved word's name (ORA-01745); one
  statement at a time, without a semicolon (ORA-00911). Whether it is Oracle's SQL at all, a parser says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlglot
from oracledb import errors
from outbox_testkit.scripted import ScriptedConnection, ScriptedCursor
from sqlglot import exp

# "Oracle SQL Reserved Words", SQL Language Reference, appendix E.
RESERVED = set(
    """
    ACCESS ADD ALL ALTER AND ANY AS ASC AUDIT BETWEEN BY CHAR CHECK CLUSTER COLUMN COLUMN_VALUE COMMENT
    COMPRESS CONNECT CREATE CURRENT DATE DECIMAL DEFAULT DELETE DESC DISTINCT DROP ELSE EXCLUSIVE EXISTS
    FILE FLOAT FOR FROM GRANT GROUP HAVING IDENTIFIED IMMEDIATE IN INCREMENT INDEX INITIAL INSERT
    INTEGER INTERSECT INTO IS LEVEL LIKE LOCK LONG MAXEXTENTS MINUS MLSLABEL MODE MODIFY NESTED_TABLE_ID
    NOAUDIT NOCOMPRESS NOT NOWAIT NULL NUMBER OF OFFLINE ON ONLINE OPTION OR ORDER PCTFREE PRIOR PUBLIC
    RAW RENAME RESOURCE REVOKE ROW ROWID ROWNUM ROWS SELECT SESSION SET SHARE SIZE SMALLINT START
    SUCCESSFUL SYNONYM SYSDATE TABLE THEN TO TRIGGER UID UNION UNIQUE UPDATE USER VALIDATE VALUES
    VARCHAR VARCHAR2 VIEW WHENEVER WHERE WITH
    """.split()  # noqa: SIM905 - a hundred words
)
NOT_PARSED = ("(CACHE 1000 ORDER)", " PCTFREE 30")
"""Clauses of the DDL that the parser does not know; everything around them it does."""


def database_error(code: int, text: str = "something") -> Exception:
    """Makes what the driver raises for an error of the database."""
    error = errors._Error(message=f"ORA-{code:05}: {text}", code=code)
    raised: Exception = error.exc_type(error)
    return raised


def driver_error(code: int, text: str = "something") -> Exception:
    """Makes what the driver raises for an error of its own."""
    error = errors._Error(message=f"DPY-{code}: {text}")
    raised: Exception = error.exc_type(error)
    return raised


def parsed(sql: str) -> exp.Expression:
    """Parses a statement as Oracle's.

    Raises:
        sqlglot.ParseError: It is none.
    """
    for clause in NOT_PARSED:
        sql = sql.replace(clause, "")
    (tree,) = sqlglot.parse(sql, read="oracle")
    assert isinstance(tree, exp.Expression)
    assert not isinstance(tree, exp.Command), f"the parser did not understand {sql}"
    return tree


def placeholders(sql: str) -> list[str]:
    """Returns the names of the binds, without what stands in quotes."""
    return re.findall(r":([A-Za-z]\w*)", re.sub(r"'[^']*'|\"[^\"]*\"", "", sql))


class FakeOracle(ScriptedConnection):
    """The connection."""

    version = "19.22.0.0.0"

    def __init__(self, replies: Mapping[str, Any] | None = None) -> None:
        super().__init__(replies)
        self.call_timeout = 0
        self.outputtypehandler: Any = None
        self.in_transaction = self.reads_only = False

    def record(self, text: str, values: Any) -> None:
        if text in ("commit", "rollback"):
            self.in_transaction = self.reads_only = False
        super().record(text, values)

    def cursor(self) -> FakeCursor:
        if self.closed:
            raise driver_error(1001, "not connected to database")
        return FakeCursor(self)


class FakeCursor(ScriptedCursor):
    """Its cursor."""

    def __init__(self, connection: FakeOracle) -> None:
        super().__init__()
        self._connection = connection
        self._rows: Sequence[Any] = ()
        self.arraysize = 100
        self.prefetchrows = 2

    def execute(self, sql: str, binds: Mapping[str, Any] | None = None) -> None:
        tree = self._checked(sql, binds or {})
        bound = {name: None if value == "" else value for name, value in (binds or {}).items()}
        self._connection.record(sql, bound)
        reply = self._connection.reply(sql, bound)
        if isinstance(tree, exp.Select):
            names = self._connection.columns if tree.is_star and " * " in sql else tree.expressions
            self.description = [(getattr(each, "alias_or_name", each).upper(),) for each in names]
            self._rows = reply if isinstance(reply, list) else []
            self.rowcount = 0
            assert all(len(row) == len(self.description) for row in self._rows)
        else:
            self.description = None
            self.rowcount = reply if isinstance(reply, int) else 1

    def executemany(self, sql: str, rows: list[Mapping[str, Any]]) -> None:
        assert rows, "python-oracledb wants at least one row"
        assert len({tuple(row) for row in rows}) == 1, "the rows of an array differ in shape"
        types = [{type(row[name]) for row in rows} - {type(None)} for name in rows[0]]
        assert all(len(kinds) <= 1 for kinds in types), "a column of the array mixes types"
        self._checked(sql, rows[0])
        self._connection.record(sql, rows)
        touched = [self._connection.reply(sql, row) for row in rows]
        self.rowcount = sum(each if isinstance(each, int) else 1 for each in touched)

    def fetchall(self) -> list[Any]:
        assert self.description is not None, "DPY-1003: the statement returns no rows"
        return list(self._rows)

    def _checked(self, sql: str, binds: Mapping[str, Any]) -> exp.Expression | None:
        names = placeholders(sql)
        for name in binds:
            if name not in names:
                errors._raise_err(errors.ERR_INVALID_BIND_NAME, name=name)
        for name in names:
            if name not in binds:
                errors._raise_err(errors.ERR_MISSING_BIND_VALUE, name=name)
            if name.upper() in RESERVED:
                raise database_error(1745, f"invalid host/bind variable name {name}")
        for value in binds.values():
            assert isinstance(value, str | bytes | int | float | None), f"{value!r} is bound"
        if sql.rstrip().endswith(";"):
            raise database_error(911, "invalid character")
        if "FOR UPDATE" in sql and ("ORDER BY" in sql or "FETCH FIRST" in sql):
            raise database_error(2014, "cannot select FOR UPDATE from view with DISTINCT, GROUP BY, etc.")
        if any(listed.count(",") >= 1000 for listed in re.findall(r"IN \(([^()]*)\)", sql)):
            raise database_error(1795, "maximum number of expressions in a list is 1000")
        assert not re.search(r"IN \(\s*\d", sql), "ids are bound: each other list is parsed anew"
        return self._parsed(sql)

    def _parsed(self, sql: str) -> exp.Expression | None:
        if sql.startswith("ALTER SESSION"):
            return None
        connection, begun = self._connection, self._connection.in_transaction
        connection.in_transaction = True
        if sql == "SET TRANSACTION READ ONLY":
            assert not begun, "ORA-01453: SET TRANSACTION must be first statement of transaction"
            connection.reads_only = True
            return None
        tree = parsed(sql)
        if connection.reads_only and not isinstance(tree, exp.Select):
            raise database_error(1456, "may not perform insert/delete/update inside a READ ONLY transaction")
        return tree
