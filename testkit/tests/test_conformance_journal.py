"""The conformance suite finds journals that forget or mix up, and dialects that cannot do without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from outbox_api import Action, DriverError, Entry
from outbox_api.portable.journal import JournalStatements, PortableJournal
from outbox_sqlite import SqliteDialect
from outbox_testkit.conformance.journal import JournalConformance
from outbox_testkit.conformance.schemas import Noted
from outbox_testkit.conformance.under_test import Box, OutboxUnderTest

FAILURES = (AssertionError, pytest.fail.Exception, DriverError)
SUITE = JournalConformance()
begin, end, entries, connect = (
    PortableJournal.begin,
    PortableJournal.end,
    PortableJournal.entries,
    SqliteDialect.connect,
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def bare(tmp_path: Path, stack: ExitStack) -> Box:
    options = {"data_source": str(tmp_path / "shop.db")}
    return Box(OutboxUnderTest("sqlite", options, restart=["DELETE FROM {table}"]), stack)


@pytest.fixture
def box(bare: Box) -> Box:
    bare.dialect.create()
    return bare


def begins_in_memory(journal: Any, action: Action) -> UUID:
    journal.kept = [*getattr(journal, "kept", []), action]
    return uuid4()


def begins_with_an_outcome(journal: PortableJournal, action: Action) -> UUID:
    number = begin(journal, action)
    end(journal, number, "done")
    return number


def ends_again(journal: PortableJournal, entry: UUID, outcome: str) -> None:
    with journal._session.transaction("end"):
        journal._session.execute(
            journal._sql.end.replace(" AND ended IS NULL", ""),
            name=journal._name,
            id=str(entry),
            outcome=outcome,
        )


def ends_whatever_there_is(journal: PortableJournal, _: UUID, outcome: str) -> None:
    for entry in entries(journal):
        end(journal, entry.id, outcome)


def reads_the_oldest(journal: PortableJournal, limit: int = 100) -> Sequence[Entry]:
    return entries(journal, 1000)[::-1][:limit]


def reads_without_a_limit(journal: PortableJournal, _: int = 100) -> Sequence[Entry]:
    return entries(journal, 1000)


def reads_a_time_without_a_zone(journal: PortableJournal, limit: int = 100) -> Sequence[Entry]:
    return [replace(entry, at=entry.at.replace(tzinfo=None)) for entry in entries(journal, limit)]


def reads_an_empty_outcome_as_none(journal: PortableJournal, limit: int = 100) -> Sequence[Entry]:
    return [replace(entry, outcome=entry.outcome or None) for entry in entries(journal, limit)]


def reads_ascii(journal: PortableJournal, limit: int = 100) -> Sequence[Entry]:
    return [
        replace(entry, action=replace(entry.action, reason=ascii(entry.action.reason)[1:-1]))
        for entry in entries(journal, limit)
    ]


def reads_whatever_is_chosen(
    journal: PortableJournal,
    limit: int = 100,
    chosen: object = None,
) -> Sequence[Entry]:
    return entries(journal, limit)


def kept_in_one_pot(journal: Any, session: Any, tables: Any) -> None:
    journal._session, journal._idiom, journal._name = session, session.idiom, "all"
    journal._sql = JournalStatements(session.idiom, tables.journal)


Test = Callable[[JournalConformance, Box, ExitStack], None]


@pytest.mark.parametrize(
    ("method", "broken", "test"),
    [
        ("begin", begins_in_memory, JournalConformance.test_it_outlives_what_is_done_to_the_rest),
        ("begin", begins_with_an_outcome, JournalConformance.test_a_deed_that_was_interrupted_has_no_outcome),
        ("end", ends_again, JournalConformance.test_an_outcome_is_noted_once),
        ("end", ends_whatever_there_is, JournalConformance.test_a_deed_that_was_interrupted_has_no_outcome),
        ("entries", reads_the_oldest, JournalConformance.test_the_newest_entries_come_first),
        ("entries", reads_without_a_limit, JournalConformance.test_the_newest_entries_come_first),
        (
            "entries",
            reads_a_time_without_a_zone,
            JournalConformance.test_a_deed_is_there_with_its_outcome_for_all_who_connect_later,
        ),
        (
            "entries",
            reads_an_empty_outcome_as_none,
            JournalConformance.test_a_deed_that_was_interrupted_has_no_outcome,
        ),
        ("entries", reads_whatever_is_chosen, JournalConformance.test_entries_are_chosen),
        ("entries", reads_ascii, JournalConformance.test_texts_of_every_kind_are_readable),
        (
            "__init__",
            kept_in_one_pot,
            JournalConformance.test_outboxes_of_one_database_have_entries_of_their_own,
        ),
    ],
)
def test_a_journal_fails_that_is_broken(
    box: Box, monkeypatch: pytest.MonkeyPatch, method: str, broken: object, test: Test
) -> None:
    monkeypatch.setattr(PortableJournal, method, broken)
    with ExitStack() as stack, pytest.raises(FAILURES):
        test(SUITE, box, stack)


def test_a_journal_fails_that_takes_texts_as_they_are(
    box: Box, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_api.portable.journal.fitting", lambda text, *_: text)
    with pytest.raises((*FAILURES, UnicodeEncodeError)):
        SUITE.test_texts_that_do_not_fit_are_made_to(box, stack, "🌍" * 40_000)
    with pytest.raises((*FAILURES, UnicodeEncodeError)):
        SUITE.test_texts_that_do_not_fit_are_made_to(box, stack, "half \udc80")


def test_a_dialect_fails_whose_readers_may_note(
    box: Box, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SqliteDialect.journal
    monkeypatch.setattr(SqliteDialect, "journal", lambda dialect, **_: journal(dialect))
    with pytest.raises(FAILURES):
        SUITE.test_whoever_only_reads_notes_nothing(box, stack)


def test_a_dialect_fails_that_harvests_nothing_without_a_journal(
    bare: Box, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_with_journal(dialect: SqliteDialect, *arguments: Any) -> Any:
        dialect.journal().close()
        return connect(dialect, *arguments)

    noted = Noted(Box(bare.under.apart(), stack))
    monkeypatch.setattr(SqliteDialect, "connect", connect_with_journal)
    with pytest.raises(FAILURES, match="outbox init"):
        SUITE.test_init_creates_one_that_is_lost(noted, stack)
