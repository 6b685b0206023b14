"""The journal: what operators have done, noted before and after, and readable by whoever may look."""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import Action, DriverError, Entry, Level
from outbox_api.portable.journal import PortableJournal
from outbox_api.seams.journal import ChosenEntries

from outbox_testkit.conformance.schemas import Noted, NotedConformance
from outbox_testkit.conformance.stashing import TEXTS
from outbox_testkit.conformance.under_test import Box
from outbox_testkit.conformance.watching import CONNECTIONS, JOURNAL, refusal

ACTION = Action("alice at host-1", "cli", "retry", "keys k1, k2", "the topic exists by now")
WITHOUT_A_JOURNAL = [how for how in CONNECTIONS if not how.startswith("journal")]


class JournalConformance(NotedConformance):
    """``journal``, whose table nothing else needs."""

    @staticmethod
    def journal(box: Box, stack: ExitStack, *, read_only: bool = False) -> PortableJournal:
        """Connects to the journal of an outbox."""
        journal = box.dialect.journal(read_only=read_only)
        stack.callback(journal.close)
        return journal

    def test_a_deed_is_there_with_its_outcome_for_all_who_connect_later(
        self, box: Box, stack: ExitStack
    ) -> None:
        with closing(box.dialect.journal()) as journal:
            assert list(journal.entries()) == []
            number = journal.begin(ACTION)
            (begun,) = self.journal(box, stack).entries()
            assert begun == Entry(number, begun.at, ACTION, None)
            assert begun.at.tzinfo is not None
            assert abs(datetime.now(UTC) - begun.at) < timedelta(minutes=5)
            journal.end(number, "2 keys are free")
        for read_only in (False, True):
            (ended,) = self.journal(box, stack, read_only=read_only).entries()
            assert ended == Entry(number, begun.at, ACTION, "2 keys are free")

    def test_it_knows_the_user_of_the_database(self, box: Box, stack: ExitStack) -> None:
        user = self.journal(box, stack).user()
        assert user == self.journal(box, stack, read_only=True).user()
        assert user.isprintable()

    def test_a_deed_that_was_interrupted_has_no_outcome(self, box: Box, stack: ExitStack) -> None:
        journal = self.journal(box, stack)
        first, second, third = (journal.begin(Action("a", "cli", verb)) for verb in ("one", "two", "three"))
        journal.end(second, "")
        journal.end(uuid4(), "of nothing that was begun")
        journal.close()
        found = {entry.id: entry.outcome for entry in self.journal(box, stack).entries()}
        assert found == {first: None, second: "", third: None}

    def test_an_outcome_is_noted_once(self, box: Box, stack: ExitStack) -> None:
        journal = self.journal(box, stack)
        number = journal.begin(ACTION)
        for outcome in ("done", "done", "something else"):
            journal.end(number, outcome)
        assert [entry.outcome for entry in journal.entries()] == ["done"]

    def test_the_newest_entries_come_first(self, box: Box, stack: ExitStack) -> None:
        journals = [self.journal(box, stack) for _ in range(2)]
        numbers = [journals[turn % 2].begin(Action("a", "http", f"verb {turn}")) for turn in range(12)]
        journals[0].end(numbers[3], "which changes no order")
        entries = self.journal(box, stack, read_only=True).entries()
        assert [entry.id for entry in entries] == numbers[::-1]
        assert [entry.at for entry in entries] == sorted((entry.at for entry in entries), reverse=True)
        sleep(0.01)
        last = journals[1].begin(ACTION)
        assert [entry.id for entry in journals[0].entries(3)] == [last, *numbers[:-3:-1]]
        assert len(journals[0].entries(1000)) == 13

    def test_entries_are_chosen(self, box: Box, stack: ExitStack) -> None:
        journal = self.journal(box, stack)
        names = ("ann", "bob", "100%_[a]!'\\", "ann marie", "bob")
        numbers = [journal.begin(Action(name, "cli", f"verb {n % 2}")) for n, name in enumerate(names)]

        def chosen(**wanted: Any) -> list[int]:
            found = journal.entries(chosen=ChosenEntries(**wanted))
            return [numbers.index(entry.id) for entry in found]

        assert (chosen(), chosen(operator="ann"), chosen(verb="verb 1")) == ([4, 3, 2, 1, 0], [3, 0], [3, 1])
        assert chosen(operator="bob", verb="verb 1") == [1]
        for odd in ("%_[a]!'\\", "100%", "_[", "!'"):
            assert chosen(operator=odd) == [2], odd
        assert chosen(operator="' OR 1 = 1 --") == chosen(operator="n%") == chosen(verb="verb _") == []
        assert (chosen(after=numbers[3]), chosen(after=numbers[0]), chosen(after=uuid4())) == (
            [2, 1, 0],
            [],
            [],
        )
        assert chosen(operator="ann", after=numbers[3]) == [0]
        (last, *_, first) = journal.entries()
        hour = timedelta(hours=1)
        assert chosen(since=first.at - hour, until=last.at + hour) == [4, 3, 2, 1, 0]
        assert chosen(since=last.at + hour) == chosen(until=first.at - hour) == []
        assert 0 not in chosen(until=first.at)

    def test_outboxes_of_one_database_have_entries_of_their_own(self, box: Box, stack: ExitStack) -> None:
        boxes = [box, box.beside("b")]
        journals = [self.journal(each, stack) for each in boxes]
        numbers = [journal.begin(ACTION) for journal in journals]
        journals[1].end(numbers[0], "of another outbox's action")
        for journal, number in zip(journals, numbers, strict=True):
            assert [(entry.id, entry.outcome) for entry in journal.entries()] == [(number, None)]

    def test_texts_of_every_kind_are_readable(self, box: Box, stack: ExitStack) -> None:
        journal = self.journal(box, stack)
        for text in TEXTS:
            action = Action(text, "cli", "retry", text, text)
            journal.end(journal.begin(action), text)
            (entry,) = journal.entries(1)
            assert (entry.action, entry.outcome) == (action, text)

    @pytest.mark.parametrize("text", ["", "🌍é" * 40_000, "zero \0, half \udc80, 世界 🌍 'x' \\ %s {}"])
    def test_texts_that_do_not_fit_are_made_to(self, box: Box, stack: ExitStack, text: str) -> None:
        journal = self.journal(box, stack)
        number = journal.begin(Action(text, text, text, text, text))
        journal.end(number, text)
        (entry,) = journal.entries()
        action = entry.action
        for found in (
            action.operator,
            action.via,
            action.verb,
            action.subject,
            action.reason,
            entry.outcome or "",
        ):
            assert found[:4] == text[:4]
            assert len(found) < 4_000

    def test_whoever_only_reads_notes_nothing(self, box: Box, stack: ExitStack) -> None:
        journal = self.journal(box, stack)
        number = journal.begin(ACTION)
        reader = self.journal(box, stack, read_only=True)
        with pytest.raises(DriverError):
            reader.begin(ACTION)
        with pytest.raises(DriverError):
            reader.end(number, "done")
        assert [(entry.id, entry.outcome) for entry in reader.entries()] == [(number, None)]

    def test_it_outlives_what_is_done_to_the_rest(self, box: Box, stack: ExitStack) -> None:
        number = self.journal(box, stack).begin(ACTION)
        box.fill(2)
        box.lead().mark()
        box.restart()
        box.connect().bump(2, "another")
        box.dialect.create()
        box.dialect.migrate()
        assert [entry.id for entry in self.journal(box, stack).entries()] == [number]

    def test_after_closing_it_cannot_be_had(self, box: Box, stack: ExitStack) -> None:
        journal = self.journal(box, stack)
        journal.close()
        journal.close()
        with pytest.raises(DriverError) as caught:
            journal.entries()
        assert caught.value.retryable

    def test_init_creates_one_that_is_lost(self, noted: Noted, stack: ExitStack) -> None:
        dialect = noted.box.dialect
        dropped = noted.drop(JOURNAL)
        values = noted.box.fill(3)
        assert noted.box.lead().values() == values
        assert not any(refusal(dialect, how) for how in WITHOUT_A_JOURNAL)
        for how in CONNECTIONS.keys() - set(WITHOUT_A_JOURNAL):
            assert "run 'outbox init'" in refusal(dialect, how), how
        assert [
            each
            for each in dialect.check()
            if each.level is Level.WARNING and each.subject == "journal table"
        ]
        assert list(dialect.create()) == [dropped]
        assert list(dialect.migrations()) == []
        self.journal(noted.box, stack).begin(ACTION)
