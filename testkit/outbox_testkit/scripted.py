"""A DB-API connection that answers by a script: tests of a dialect where its database is not available.

It is no database. A plugin's tests derive a connection and a cursor that check each statement against the
rules of the driver and the database, and read from the log what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any, Self

from outbox_api.intake.intake import Intake
from outbox_api.portable import PortableIntake, Session, TableName
from outbox_api.portable.by_ids import ChangeByIds, SelectByIds, without_runs
from outbox_api.portable.history import HistoryStatements
from outbox_api.portable.journal import JournalStatements
from outbox_api.portable.lease import LeaseStatements
from outbox_api.portable.outboxes import MemberStatements, find_outboxes
from outbox_api.portable.sources import (
    DEAD_LETTER_COLUMNS,
    FENCE_COLUMNS,
    HISTORY_COLUMNS,
    JOURNAL_COLUMNS,
    LEASE_COLUMNS,
    MEMBER_COLUMNS,
    NOTE_COLUMNS,
    OUTBOX_COLUMNS,
    sources,
)
from outbox_api.portable.statements import UNCLAIMED, Statements
from outbox_api.portable.view import OriginStatements
from outbox_api.seams.affinity import ColumnIs
from outbox_api.seams.journal import ALL_ENTRIES, ChosenEntries, new_entry_id


class ScriptedConnection:
    """The connection.

    Args:
        replies: Pattern → the reply to statements in which it is found: rows, a number of rows, or an error
            to raise; or a function of the parameters that returns one of these. The first pattern that
            matches decides; without one a query returns no rows, and a change touches one.

    Attributes:
        log: What was asked for, in order: a statement with its parameters, ``commit``, ``rollback``.
    """

    columns = sorted(
        {
            *OUTBOX_COLUMNS,
            *FENCE_COLUMNS,
            *NOTE_COLUMNS,
            *LEASE_COLUMNS,
            *MEMBER_COLUMNS,
            *DEAD_LETTER_COLUMNS,
            *JOURNAL_COLUMNS,
            *HISTORY_COLUMNS,
        }
    )

    def __init__(self, replies: Mapping[str, Any] | None = None) -> None:
        self.replies = dict(replies or {})
        self.log: list[tuple[str, Any]] = []
        self.closed = False

    def commit(self) -> None:
        """Logs a commit."""
        self.record("commit", None)

    def rollback(self) -> None:
        """Logs a rollback."""
        self.record("rollback", None)

    def close(self) -> None:
        """Closes the connection."""
        self.closed = True

    def record(self, text: str, values: Any) -> None:
        """Appends an entry to the log."""
        self.log.append((text, values))

    def reply(self, sql: str, values: Any) -> Any:
        """Returns the script's reply to a statement; ``None`` where it has none."""
        for pattern, reply in self.replies.items():
            if re.search(pattern, sql):
                found = reply(values) if callable(reply) else reply
                if isinstance(found, Exception):
                    raise found
                return found
        return None

    def sent(self, start: str) -> list[tuple[str, Any]]:
        """Returns the statements that begin with ``start``, with their parameters."""
        return [entry for entry in self.log if entry[0].startswith(start)]

    @property
    def verbs(self) -> list[str]:
        """The first words of what was asked for."""
        return [text.split()[0] for text, _ in self.log]


class ScriptedCursor:
    """What the cursors of scripted connections have in common."""

    def __init__(self) -> None:
        self.rowcount = -1
        self.description: list[tuple[str]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Does nothing."""


def portable_statements(
    statements: Statements, ids: str, eligible: Sequence[ColumnIs] = ()
) -> Iterator[tuple[str, str]]:
    """Returns all statements for an outbox but those of an intake, by a name for each.

    Args:
        statements: The statements.
        ids: A list of ids as the dialect's session writes it.
        eligible: The conditions that the statements were made with.
    """
    for name, value in vars(statements).items():
        if isinstance(value, SelectByIds):
            yield name, value.sql(ids)
        elif isinstance(value, ChangeByIds):
            yield name, statements.idiom.change_by_ids(value, ids)
        elif isinstance(value, str) and name[0] != "_" and " " in value:
            yield name, value
    yield from _beside_statements(statements)
    for runs, name in product((1, 4), ("claim", "purge", "reset", "remove")):
        if change := statements.idiom.change_runs(getattr(statements, name), runs):
            yield f"{name} {runs} runs", change
    yield from _choices(statements)
    for how, named in (("named", True), ("of a row", False)):
        for kind, sql in zip(("read", "count"), statements.rows_of_key(named=named), strict=True):
            yield f"{kind} rows of a key {how}", sql
    yield from _source_statements(statements, len(eligible))
    yield from _origin_statements(statements)


def _choices(statements: Statements) -> Iterator[tuple[str, str]]:
    outside = {"nothing": (), "batches": (without_runs(2),)}
    outside["ids"] = (statements.idiom.ids_not_in(range(1_500))[0],)
    keys, topics = ([f"{letter}{number}" for number in range(1_500)] for letter in "kt")
    outside["keys"] = (UNCLAIMED, *statements.without(keys, topics)[0])
    for lanes in (1, 8):
        for name, conditions in outside.items():
            yield f"choose {lanes} without {name}", statements.choose(lanes, conditions)
            yield f"choose sized {lanes} without {name}", statements.choose(lanes, conditions, sized=True)


def _source_statements(statements: Statements, count: int) -> Iterator[tuple[str, str]]:
    for number in range(count):
        for kind, sized in (("", False), (" sized", True)):
            choose = statements.choose(8, (UNCLAIMED,), sized=sized, number=number)
            yield f"choose{kind} source {number}", choose
        if newest := statements.newest(number):
            yield f"newest {number}", newest
        if statements.source(number).ripe:
            yield f"ripe head {number}", statements.ripe_head(number)


def _origin_statements(statements: Statements) -> Iterator[tuple[str, str]]:
    [source] = sources(statements.idiom, [ColumnIs("cluster_id", 2)], {"cluster_id": "cluster index"})
    for name, sql in vars(OriginStatements(statements, source)).items():
        yield f"origins {name}", sql
    idiom = statements.idiom
    queries = (idiom.indexes, idiom.defaults, idiom.present or f"SELECT {idiom.now}")
    for name, sql in zip(("indexes", "defaults", "present"), queries, strict=True):
        if sql:
            yield name, sql


def _beside_statements(statements: Statements) -> Iterator[tuple[str, str]]:
    for name, sql in vars(LeaseStatements(statements)).items():
        yield f"lease {name}", sql
    for name, sql in vars(MemberStatements(statements)).items():
        yield f"members {name}", sql
    for name, sql in vars(HistoryStatements(statements)).items():
        yield f"history {name}", sql
    journal, moment = JournalStatements(statements.idiom, TableName("shop", "journal")), datetime.now(UTC)
    some = ChosenEntries(operator="a", verb="v", since=moment, until=moment, after=new_entry_id())
    yield from (("journal begin", journal.begin), ("journal end", journal.end))
    yield from (("journal all", journal.entries(ALL_ENTRIES)[0]), ("journal some", journal.entries(some)[0]))
    for where, everywhere in (("here", False), ("everywhere", True)):
        yield f"find outboxes {where}", find_outboxes(statements.idiom, everywhere=everywhere)


def intake_statements(session: Session, outbox: TableName, ids: str) -> dict[str, str]:
    """Returns the statements that take in rows of another table, by a name for each.

    Args:
        session: The dialect's session over a scripted connection.
        outbox: The outbox.
        ids: A list of ids as the session writes it.
    """
    source = Intake(table="shop.other", id="id", topic="t", key="name", value="reason")
    intake = PortableIntake(session, source, outbox, binary=False, extras=())
    found = intake.statements(ids)
    done = replace(source, done={"name": "x", "since": "now()"}, where={"name": ["a", None], "id": "1"})
    marking = PortableIntake(session, done, outbox, binary=False, extras=())
    return found | {f"marking {name}": sql for name, sql in marking.statements(ids).items()}
