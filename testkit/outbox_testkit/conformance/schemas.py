"""The version of an outbox's tables: noted, compared, and raised by a migration."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from outbox_api import OLDEST, SCHEMA, Capability, DriverError, Level, Schema

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import Box
from outbox_testkit.conformance.watching import CONNECTIONS, JOURNAL, NOTES, refusal

NOTED = Schema(SCHEMA, OLDEST)
LATER = SCHEMA + 97


class Noted:
    """An outbox with its tables, and what is noted about them.

    Attributes:
        box: The outbox.
    """

    def __init__(self, apart: Box) -> None:
        self._tables = apart.dialect.create()
        self.box = apart

    def note(self, version: int, oldest: int) -> None:
        """Changes the note."""
        self.execute(f"UPDATE {self._tables[NOTES]} SET version = {version}, oldest = {oldest}")

    def forget(self) -> None:
        """Deletes the note, as if the tables had been made by hand."""
        self.execute(f"UPDATE {self._tables[NOTES]} SET version = NULL, oldest = NULL")

    def outdate(self) -> None:
        """Has the dialect make tables with one more column, which these tables lack."""
        dialect: Any = self.box.dialect
        add = dialect.idiom.add_column(self.box.options.journal, "added", dialect.idiom.integer_type)

        def alterations(session: Any) -> list[str]:
            return [] if "added" in session.columns(self._tables[JOURNAL]) else [add]

        dialect.alterations = alterations
        self.note(SCHEMA - 1, OLDEST)

    def drop(self, place: int) -> str:
        """Drops a table by its place among those that ``create`` returns; returns its name."""
        self.execute(f"DROP TABLE {self._tables[place]}")
        return self._tables[place]

    def execute(self, change: str) -> None:
        """Executes a statement in a transaction of its own."""
        application = self.box.application()
        with closing(application.cursor()) as cursor:
            cursor.execute(change)
        application.commit()


class NotedConformance(Conformance):
    """A theme with an outbox whose note can be changed."""

    @pytest.fixture
    def noted(self, apart: Box) -> Noted:
        """The outbox under test, whose note can be changed."""
        return Noted(apart)


class SchemaConformance(NotedConformance):
    """``schema``, ``migrations``, ``migrate``, and what is refused."""

    def test_the_version_of_new_tables_is_noted(self, box: Box) -> None:
        assert box.dialect.schema() == NOTED
        assert (list(box.dialect.migrations()), list(box.dialect.migrate())) == ([], [])
        assert not [each for each in box.dialect.check() if "migrate" in each.cure]

    def test_the_ddl_alone_makes_such_tables(self, apart: Box) -> None:
        application = apart.application()
        with closing(application.cursor()) as cursor:
            for statement in apart.dialect.ddl():
                cursor.execute(statement)
        application.commit()
        assert apart.dialect.schema() == NOTED
        assert (list(apart.dialect.create()), list(apart.dialect.migrations())) == ([], [])
        values = apart.fill(3)
        assert apart.lead().values() == values

    def test_without_tables_there_is_no_version(self, apart: Box) -> None:
        for ask in (apart.dialect.schema, apart.dialect.migrations, apart.dialect.migrate):
            with pytest.raises(DriverError, match="outbox init"):
                ask()

    def test_outboxes_have_versions_of_their_own_and_leaders_leave_them_alone(self, box: Box) -> None:
        other = box.beside("b")
        for each in (box, other):
            each.lead_all(3)
            each.lead()
            assert each.dialect.schema() == NOTED
            assert len(each.connect().lane_statuses()) == 1

    def test_tables_that_need_a_later_outbox_are_refused_by_all_that_connects(self, noted: Noted) -> None:
        dialect = noted.box.dialect
        noted.note(LATER, LATER)
        for how in CONNECTIONS:
            told = refusal(dialect, how)
            assert "upgrade outbox" in told, how
            assert str(LATER) in told
        assert dialect.schema() == Schema(LATER, LATER)
        for ask in (dialect.migrations, dialect.migrate, dialect.create):
            with pytest.raises(DriverError, match="upgrade outbox"):
                ask()
        assert [each for each in dialect.check() if each.level is Level.ERROR]
        noted.note(SCHEMA, OLDEST)
        assert not any(refusal(dialect, how) for how in CONNECTIONS)

    def test_later_tables_that_this_outbox_knows_enough_for_stay_as_they_are(self, noted: Noted) -> None:
        dialect = noted.box.dialect
        noted.note(LATER, SCHEMA)
        assert not any(refusal(dialect, how) for how in CONNECTIONS)
        assert (list(dialect.migrations()), list(dialect.migrate()), list(dialect.create())) == ([], [], [])
        assert dialect.schema() == Schema(LATER, SCHEMA)
        values = noted.box.fill(3)
        assert noted.box.lead().values() == values

    @pytest.mark.parametrize("former", [None, SCHEMA - 1])
    def test_an_earlier_version_is_migrated_beneath_a_harvester(
        self, noted: Noted, former: int | None
    ) -> None:
        box, dialect = noted.box, noted.box.dialect
        values = box.fill(4)
        hand = box.lead()
        hand.mark(2)
        noted.outdate()
        if former is None:
            noted.forget()
        assert (dialect.schema() or (None,))[0] == former
        assert not any(refusal(dialect, how) for how in CONNECTIONS), "its columns are all there"
        assert [each for each in dialect.check() if each.level is Level.WARNING and "migrate" in each.cure]
        pending = list(dialect.migrations())
        assert len(pending) > 1
        assert list(dialect.migrate()) == pending
        assert (list(dialect.migrations()), list(dialect.migrate())) == ([], [])
        assert dialect.schema() == NOTED
        hand.remark()
        assert hand.values() == values, "the harvester goes on"

    @needs(Capability.CONCURRENT_DDL)
    def test_several_processes_migrate_at_the_same_moment(self, noted: Noted) -> None:
        dialect = noted.box.dialect
        noted.outdate()
        pending = list(dialect.migrations())
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda _: list(dialect.migrate()), range(4)))
        assert {each for one in done for each in one} == set(pending)
        assert dialect.schema() == NOTED

    def test_a_migration_that_ended_in_between_is_completed(self, noted: Noted) -> None:
        dialect = noted.box.dialect
        noted.outdate()
        first, *rest = dialect.migrations()
        noted.execute(first)
        assert list(dialect.migrations()) == rest
        assert list(dialect.migrate()) == rest

    def test_init_leaves_what_a_migration_is_for(self, noted: Noted) -> None:
        dialect = noted.box.dialect
        noted.outdate()
        pending = list(dialect.migrations())
        assert list(dialect.create()) == []
        assert list(dialect.migrations()) == pending
