"""Which tables names mean, whichever schemas the search path has, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from outbox_api import DriverError, Intake, Level
from outbox_api.portable import portable_insert
from outbox_postgres import PostgresIdiom
from outbox_postgres.catalogue import Catalogue
from outbox_postgres.layout import find_layout
from psycopg.conninfo import make_conninfo
from psycopg.sql import Identifier

from .outbox_hands import BESIDE, MakeOutbox, Outbox, ask

ODD = 'We"ird, Schema'

OnPath = Callable[..., Outbox]


@pytest.fixture
def on_path(make_outbox: MakeOutbox, postgres_dsn: str) -> OnPath:
    """Makes an outbox over connections that begin with a search path, in a database with these schemas."""

    def make(path: str, schemas: Sequence[str] = (), **options: Any) -> Outbox:
        escaped = path.replace("\\", "\\\\").replace(" ", "\\ ")
        box = make_outbox(make_conninfo(postgres_dsn, options=f"-c search_path={escaped}"), **options)
        for schema in schemas:
            box.admin.execute(b"CREATE SCHEMA " + Identifier(schema).as_bytes(box.admin))
        return box

    return make


def schema_of(box: Outbox, table: str = "outbox") -> list[str]:
    found = box.admin.execute(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = %s ORDER BY 1", (table,)
    )
    return [row[0] for row in found]


def test_init_creates_in_the_first_schema_that_exists(on_path: OnPath) -> None:
    box = on_path("nowhere,app,public", ["app"])
    assert box.dialect.create() == ["outbox", *BESIDE]
    suffixes = [name.removeprefix("outbox") for name in ("outbox", *BESIDE)]
    assert [schema_of(box, f"outbox{suffix}") for suffix in suffixes] == [["app"]] * 8
    assert box.connect().name == "app.outbox"


def test_an_outbox_in_a_later_schema_is_found_and_has_its_tables_beside_it(on_path: OnPath) -> None:
    on_path("app", ["app", "first"]).dialect.create()
    box = on_path("first,app,public")
    box.admin.execute("DROP TABLE app.outbox_fence")
    assert box.dialect.create() == ["outbox_fence"]
    assert schema_of(box, "outbox_fence") == ["app"]
    box.write()
    hand = box.lead()
    assert hand.table.name == "app.outbox"
    assert len(hand.mark()) == 1


def test_of_two_tables_the_first_in_the_path_is_meant(on_path: OnPath) -> None:
    on_path("one", ["one", "two"]).dialect.create()
    on_path("two").dialect.create()
    assert on_path("two,one").connect().name == "two.outbox"
    assert on_path("one,two").connect().name == "one.outbox"
    assert on_path("one,two", table="two.outbox").connect().name == "two.outbox"


def test_names_of_schemas_may_need_quotes(on_path: OnPath) -> None:
    box = on_path('"We""ird, Schema",Mixed', [ODD, "Mixed"])
    assert box.dialect.create() == ["outbox", *BESIDE]
    assert box.dialect.find_outboxes("*") == ["outbox"]
    box.write()
    hand = box.lead()
    assert hand.table.name == f"{ODD}.outbox"
    assert hand.purge(*hand.ids()) == 1
    with closing(box.dialect.lease()) as lease:
        assert lease.take("leader", 60) is not None
    other = on_path('"Mixed"')
    other.dialect.create()
    assert other.connect().name == "Mixed.outbox"


def test_the_users_own_schema(on_path: OnPath) -> None:
    box = on_path('"$user",public')
    box.admin.execute(b"CREATE SCHEMA " + Identifier(box.admin.info.user).as_bytes(box.admin))
    box.dialect.create()
    assert box.connect().name == f"{box.admin.info.user}.outbox"


def test_a_path_without_schemas(on_path: OnPath) -> None:
    box = on_path("nowhere")
    with pytest.raises(DriverError, match="no schema has been selected to create in") as caught:
        box.dialect.create()
    assert not caught.value.retryable
    with pytest.raises(DriverError, match=r"no table 'outbox' in the search path \(\) of"):
        box.connect()
    assert box.dialect.find_outboxes("*") == []


def test_temporary_tables_hide_neither_ours_nor_the_catalogue(outbox: Outbox) -> None:
    outbox.write()
    hand = outbox.lead()
    connection: Any = hand.table._connection
    for name in ("outbox", "outbox_fence", "pg_class", "pg_locks"):
        connection.execute(f"CREATE TEMPORARY TABLE {name} (nothing int)")
    layout = find_layout(Catalogue(connection), outbox.options)
    assert str(layout.outbox) == '"public"."outbox"'
    assert len(hand.mark()) == 1
    assert hand.table.backlog().records == 1


def test_an_intake_is_found_in_the_path(on_path: OnPath) -> None:
    intake = Intake(table="events", id="number", topic="shop", key="customer", value="body")
    box = on_path("app,legacy", ["app", "legacy"], intake=intake)
    box.admin.execute("CREATE TABLE legacy.events (number bigserial PRIMARY KEY, customer text, body text)")
    box.admin.execute("INSERT INTO events (customer, body) VALUES ('ann', 'v')")
    box.dialect.create()
    assert [record.key for record in box.taken().mark()] == ["ann"]


def test_every_session_of_ours_leaves_the_path_and_that_of_an_application_does_not(outbox: Outbox) -> None:
    show = "SHOW search_path"
    lease, members, journal = outbox.dialect.lease(), outbox.dialect.members(), outbox.dialect.journal()
    with (
        closing(lease),
        closing(members),
        closing(journal),
        closing(outbox.dialect.stash_connection()) as application,
    ):
        ours = [each._session.connection for each in (outbox.dead_letters(), members, journal)]
        ours += [each._session.connection for each in (outbox.connect(), lease)]
        assert {ask(each, show) for each in ours} == {"pg_catalog, pg_temp"}
        assert ask(application, show) == ask(outbox.admin, show) == '"$user", public'
    insert = portable_insert(PostgresIdiom())
    assert "VALUES (pg_catalog.clock_timestamp()," in insert("outbox", {}).sql


def test_a_trigger_that_needs_a_path_sets_its_own(outbox: Outbox) -> None:
    outbox.write()
    outbox.admin.execute(
        "CREATE TABLE audit (id bigint);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NEW; END $$;"
        "CREATE TRIGGER note AFTER UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION note()"
    )
    hand = outbox.lead()
    with pytest.raises(DriverError, match='relation "audit" does not exist'):
        hand.mark()
    outbox.admin.execute("ALTER FUNCTION note SET search_path FROM CURRENT")
    assert len(hand.mark()) == 1
    assert ask(outbox.admin, "SELECT count(*) FROM audit") == 1


def creators(box: Outbox) -> list[str]:
    """The cures of what the check says about schemas."""
    found = [finding for finding in box.dialect.check() if finding.subject == "schemas"]
    assert found
    return [finding.cure for finding in found if finding.level == Level.WARNING]


def test_the_check_says_who_else_may_create_in_a_schema(outbox: Outbox, user: tuple[str, str]) -> None:
    name, _ = user
    assert creators(outbox) == []
    outbox.admin.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    assert creators(outbox) == ["REVOKE CREATE ON SCHEMA public FROM PUBLIC"]
    outbox.admin.execute(
        f"REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO {name}"
    )
    assert creators(outbox) == [f'REVOKE CREATE ON SCHEMA public FROM "{name}"']
    outbox.admin.execute(f"ALTER ROLE {name} SUPERUSER")
    assert creators(outbox) == []
    outbox.admin.execute(f"ALTER ROLE {name} NOSUPERUSER")
    outbox.admin.execute(f"ALTER SCHEMA public OWNER TO {name}")
    assert creators(outbox) == [], "it is the owner"
    outbox.admin.execute("ALTER SCHEMA public OWNER TO CURRENT_USER")


def test_the_check_follows_members_of_roles_and_the_harvesters_own_rights_do_not_count(
    outbox: Outbox, make_outbox: MakeOutbox, user: tuple[str, str]
) -> None:
    name, dsn = user
    group = f"group_{name}"
    outbox.admin.execute(f"CREATE ROLE {group}; GRANT CREATE ON SCHEMA public TO {group}")
    try:
        assert creators(outbox) == [], "nobody can be it"
        outbox.admin.execute(f"GRANT {group} TO {name}")
        assert creators(outbox) == [f'REVOKE CREATE ON SCHEMA public FROM "{group}"']
        assert creators(make_outbox(dsn)) == []
    finally:
        outbox.admin.execute(f"DROP OWNED BY {group}; DROP ROLE {group}")


def test_the_check_looks_at_schemas_that_come_before_that_of_the_outbox(on_path: OnPath) -> None:
    on_path("app", ["app", "Open"]).dialect.create()
    box = on_path("Open,app".replace("Open", '"Open"'))
    box.admin.execute('GRANT CREATE ON SCHEMA "Open" TO PUBLIC')
    assert creators(box) == ['REVOKE CREATE ON SCHEMA "Open" FROM PUBLIC']
    assert creators(on_path('app,"Open"')) == []
    assert creators(on_path('"Open",app', table="app.outbox")) == []
