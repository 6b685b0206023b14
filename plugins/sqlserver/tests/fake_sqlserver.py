"""A connection that asks of the dialect what python-tds and SQL Server ask, and answers by a script.

It is no SQL Server. What it holds a statement to is documented, or to be read in the driver:

* python-tds, ``Cursor.execute``: parameters are ``%(name)s``, filled in by Python's ``%`` whether there are
  any or not; nulls are written into the statement; a reply that is not read to its end has the driver cancel
  before it sends anything else (``_TdsSession.cancel_if_pending``); plain bytes are taken for text.
* Transact-SQL Reference: a statement has at most 2,100 parameters; bare names are no reserved keywords.
  Whether a statement is SQL Server's at all, an independent parser says.

Errors have the driver's own classes, and are made by its own function from what a server sends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytds
import sqlglot
from outbox_testkit.scripted import ScriptedConnection, ScriptedCursor
from pytds.tds_base import Param, _create_exception_by_message
from sqlglot import exp

# "Reserved Keywords (Transact-SQL)", without those that can stand where a name does not.
RESERVED = set(
    """
    ADD ALL ALTER AND ANY AS ASC AUTHORIZATION BACKUP BEGIN BETWEEN BREAK BROWSE BULK BY CASCADE CASE
    CHECK CHECKPOINT CLOSE CLUSTERED COALESCE COLLATE COLUMN COMMIT COMPUTE CONSTRAINT CONTAINS CONTINUE
    CONVERT CREATE CROSS CURRENT CURSOR DATABASE DBCC DEALLOCATE DECLARE DEFAULT DELETE DENY DESC DISK
    DISTINCT DISTRIBUTED DOUBLE DROP DUMP ELSE END ERRLVL ESCAPE EXCEPT EXEC EXECUTE EXISTS EXIT
    EXTERNAL FETCH FILE FILLFACTOR FOR FOREIGN FREETEXT FROM FULL FUNCTION GOTO GRANT GROUP HAVING
    HOLDLOCK IDENTITY IDENTITYCOL IF IN INDEX INNER INSERT INTERSECT INTO IS JOIN KEY KILL LEFT LIKE
    LINENO LOAD MERGE NATIONAL NOCHECK NONCLUSTERED NOT NULL NULLIF OF OFF OFFSETS ON OPEN OPTION OR
    ORDER OUTER OVER PERCENT PIVOT PLAN PRECISION PRIMARY PRINT PROC PROCEDURE PUBLIC RAISERROR READ
    READTEXT RECONFIGURE REFERENCES REPLICATION RESTORE RESTRICT RETURN REVERT REVOKE RIGHT ROLLBACK
    ROWCOUNT ROWGUIDCOL RULE SAVE SCHEMA SELECT SET SETUSER SHUTDOWN SOME STATISTICS TABLE TABLESAMPLE
    TEXTSIZE THEN TO TOP TRAN TRANSACTION TRIGGER TRUNCATE UNION UNIQUE UNPIVOT UPDATE UPDATETEXT USE
    USER VALUES VARYING VIEW WAITFOR WHEN WHERE WHILE WITH WRITETEXT
    """.split()  # noqa: SIM905 - many words
)
NOT_PARSED = r";?\s*ALTER TABLE \S+ SET \(LOCK_ESCALATION = DISABLE\)"
"""A statement of the DDL that the parser does not know."""


def server_error(number: int, text: str = "something", severity: int = 16) -> Exception:
    """Makes what the driver raises for an error of the server."""
    message = {"msgno": number, "message": text, "server": "s", "proc_name": "", "state": 1}
    error: Exception = _create_exception_by_message({**message, "severity": severity, "line_number": 1})
    return error


def parsed(sql: str) -> exp.Expression:
    """Parses one statement as SQL Server's, its parameters written ``@name``.

    Raises:
        sqlglot.ParseError: It is none.
    """
    (tree,) = sqlglot.parse(re.sub(NOT_PARSED, "", sql), read="tsql")
    assert isinstance(tree, exp.Expression)
    assert not isinstance(tree, exp.Command), f"the parser did not understand {sql}"
    return tree


class FakeSqlServer(ScriptedConnection):
    """The connection.

    Attributes:
        cancelled: How often the driver would have had to cancel.
    """

    autocommit = False

    def __init__(self, replies: Mapping[str, Any] | None = None) -> None:
        super().__init__(replies)
        self.unread = False
        self.cancelled = 0

    def cursor(self) -> FakeCursor:
        if self.closed:
            raise pytds.InterfaceError("Connection closed")
        return FakeCursor(self)

    def record(self, text: str, values: Any) -> None:
        self.cancelled += self.unread
        self.unread = False
        super().record(text, values)


class FakeCursor(ScriptedCursor):
    """Its cursor."""

    def __init__(self, connection: FakeSqlServer) -> None:
        super().__init__()
        self._connection = connection
        self._rows: Sequence[Any] | None = None

    def execute(self, sql: str, params: Mapping[str, Any] | tuple[()] = ()) -> None:
        values = dict(params)
        assert len(values) <= 2100
        plain = {name: _received(value) for name, value in values.items()}
        named = {name: "NULL" if value is None else f"@{name}" for name, value in values.items()}
        text = sql % (named or ())
        self._connection.record(text, plain)
        tree = None if text.startswith(("SET ", "IF ")) else parsed(text)
        reply = self._connection.reply(text, plain)
        self._connection.unread = True
        if isinstance(tree, exp.Select) or "OUTPUT" in text:
            names = self._connection.columns if " * " in text else [str(number) for number in range(20)]
            self.description = [(name,) for name in names]
            self._rows = reply if isinstance(reply, list) else []
            self.rowcount = -1
        else:
            self._rows = None
            self.rowcount = reply if isinstance(reply, int) else 1

    def fetchall(self) -> list[Any]:
        if self._rows is None:
            raise pytds.ProgrammingError("Previous statement didn't produce any results")
        return list(self._rows)

    def executemany(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            self.execute(sql, row)

    def nextset(self) -> bool | None:
        self._connection.unread = False
        return None


def _received(value: Any) -> Any:
    if isinstance(value, Param):
        assert isinstance(value.value, str)
        return value.value
    assert not isinstance(value, bytes) or isinstance(value, pytds.Binary), "plain bytes are taken for text"
    assert isinstance(value, str | bytes | int | float | UUID | None), f"{value!r} is sent"
    return value
