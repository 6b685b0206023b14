"""The journal in PostgreSQL, beyond what every dialect must do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from outbox_api import AccessDenied, Action, DriverError, Level
from outbox_api.seams.journal import ALL_ENTRIES
from outbox_servers.services import Postgres
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox, ask

ACTION = Action("Jürgen 🌍", "cli", "retry", "zero \0", "half \udc80")
MANY = """
INSERT INTO outbox_journal
SELECT name, md5(concat(name, i))::uuid, now() - make_interval(secs => i), NULL, '', '', '', '', ''
FROM generate_series(1, 10000) AS i, unnest(ARRAY['public.outbox', 'public.other']) AS name
"""


@pytest.fixture(params=["LATIN1", "EUC_JP"])
def narrow(
    request: pytest.FixtureRequest, postgres_server: Postgres, make_outbox: MakeOutbox
) -> Iterator[Outbox]:
    """An outbox in a database that does not have every character."""
    name = f"narrow_{uuid4().hex}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0")
    box = make_outbox(make_conninfo(postgres_server.dsn, dbname=name))
    box.dialect.create()
    yield box
    postgres_server.drop_database(name)


def test_characters_that_the_database_does_not_have_are_written_as_escapes(narrow: Outbox) -> None:
    with closing(narrow.dialect.journal()) as journal:
        journal.end(journal.begin(ACTION), "fertig: größer")
        (entry,) = journal.entries()
    written = (entry.action.operator, entry.action.subject, entry.action.reason, entry.outcome)
    assert written == (r"J\xfcrgen \U0001f30d", r"zero \0", r"half \udc80", r"fertig: gr\xf6\xdfer")
    with closing(narrow.dialect.connect()) as table:
        table.bump(1, f"operator {ACTION.operator}")
        table.begin_takeover(2, "größer")
        held, why = table.lane_statuses()[0].holder, table.takeovers()[0].reason
    assert (held, why) == (r"operator J\xfcrgen \U0001f30d", r"gr\xf6\xdfer")


def test_the_last_entries_are_read_through_the_index(outbox: Outbox) -> None:
    outbox.admin.execute(MANY)
    outbox.admin.execute("ANALYZE outbox_journal")
    with closing(outbox.dialect.journal()) as journal:
        assert len(journal.entries(1000)) == 1000
        with journal._session.transaction("explain"):
            query, values = journal._sql.entries(ALL_ENTRIES)
            rows = journal._session.fetch(f"EXPLAIN {query}", name=journal._name, limit=10, **values)
    plan = " ".join(row[0] for row in rows)
    assert "Index Scan Backward using outbox_journal_name_begun_id" in plan
    assert "Sort" not in plan


def test_a_table_of_another_kind_in_its_place_is_refused_and_stops_no_harvest(outbox: Outbox) -> None:
    outbox.admin.execute("DROP TABLE outbox_journal; CREATE TABLE outbox_journal (name text)")
    with pytest.raises(DriverError, match="set journalTable to another name") as caught:
        outbox.dialect.journal()
    assert "lacks the columns begun" in str(caught.value)
    outbox.write()
    assert len(outbox.lead().mark()) == 1
    (found,) = [each for each in outbox.dialect.check() if each.subject == "journal table"]
    assert (found.level, "journalTable" in found.cure) == (Level.WARNING, True)


def test_who_lacks_a_privilege_is_told_which(
    outbox: Outbox, user: tuple[str, str], make_outbox: MakeOutbox
) -> None:
    name, dsn = user
    outbox.admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
    reader = make_outbox(dsn)
    with closing(reader.dialect.journal(read_only=True)) as journal:
        assert journal.entries() == []
    with pytest.raises(AccessDenied, match=f'GRANT INSERT, UPDATE ON "public"."outbox_journal" TO "{name}"'):
        reader.dialect.journal()
    outbox.admin.execute(f"GRANT INSERT, UPDATE ON outbox_journal TO {name}")
    with closing(reader.dialect.journal()) as journal:
        journal.end(journal.begin(Action("clerk", "http", "retry")), "refused")
    outbox.admin.execute("DROP TABLE outbox_journal")
    with pytest.raises(DriverError, match=r"there is no journal table .*: run 'outbox init'"):
        reader.dialect.journal(read_only=True)
    assert ask(outbox.admin, "SELECT to_regclass('outbox_journal')") is None


def test_a_journal_in_a_schema_of_its_own_is_hidden_from_harvesters_and_troubles_none(
    outbox: Outbox, user: tuple[str, str], make_outbox: MakeOutbox
) -> None:
    name, dsn = user
    outbox.admin.execute("CREATE SCHEMA desk")
    owner = make_outbox(journal_table="desk.journal")
    assert owner.dialect.create() == ["desk.journal"]
    outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}")
    harvester = make_outbox(dsn, journal_table="desk.journal")
    outbox.write()
    assert len(harvester.lead().mark()) == 1
    found = {each.subject: each.level for each in harvester.dialect.check()}
    assert (found["journal table"], found["version of the tables"]) == (Level.OK, Level.OK)
    with pytest.raises(AccessDenied, match="permission denied for schema desk"):
        harvester.dialect.journal()
    outbox.admin.execute("DROP SCHEMA desk CASCADE")
