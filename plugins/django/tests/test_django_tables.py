"""The migration creates what ``outbox init`` creates, and the checks say what is wrong."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.test import override_settings
from outbox_api import Dialect
from outbox_django.addresses import address_of
from outbox_django.outboxes import outbox_of
from outbox_django.tables import drop

pytestmark = pytest.mark.usefixtures("project")


class NoOutbox:
    """A router that wants the outbox nowhere."""

    def allow_migrate(self, _: str, app: str, **__: object) -> bool | None:
        return False if app == "outbox_django" else None


def dialect() -> Dialect:
    outbox = outbox_of("default")
    return outbox.driver.create(replace(outbox.options, **address_of("default")))


def migrate(*target: str, database: str = "default") -> None:
    call_command("migrate", "outbox_django", *target, database=database, verbosity=0)


def tables(alias: str = "default") -> set[str]:
    with connections[alias].cursor() as cursor:
        return {name for name in connections[alias].introspection.table_names(cursor) if "outbox" in name}


def told(**how: Any) -> list[str]:
    return [each.id for each in run_checks(**how) if each.id.startswith("outbox_django")]


def test_a_migration_creates_what_init_creates_and_drops_it() -> None:
    assert told(databases=["default"]) == ["outbox_django.W002"]
    migrate()
    assert len(tables()) == 8
    assert told(databases=["default", "other"]) == []
    assert dialect().create() == []
    assert dialect().migrations() == []
    with closing(dialect().connect()) as table:
        assert table.identity()
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)  # exits if it would propose any
    migrate("zero")
    assert tables() == set()
    migrate()
    assert len(tables()) == 8


@pytest.mark.parametrize(
    "statements",
    [pytest.param(number, marks=[] if number in {1, 5, 8} else pytest.mark.slow) for number in range(1, 9)],
)
def test_an_interrupted_migration_is_completed_and_can_be_dropped(
    monkeypatch: pytest.MonkeyPatch, statements: int
) -> None:
    left = iter(range(statements))
    execute = BaseDatabaseSchemaEditor.execute

    def interrupted(editor: Any, sql: str, params: object = ()) -> None:
        if "outbox" in str(sql) and next(left, None) is None:
            raise KeyboardInterrupt
        execute(editor, sql, params)

    for undo in (False, True):
        left = iter(range(statements))
        with monkeypatch.context() as patch:
            patch.setattr(BaseDatabaseSchemaEditor, "execute", interrupted)
            with pytest.raises(KeyboardInterrupt):
                migrate()
        if undo and tables():
            with connections["default"].schema_editor() as editor:
                drop(None, editor)
            assert tables() == set()
        migrate()
        assert len(tables()) == 8
        assert dialect().create() == []
        assert dialect().migrations() == []
        assert told(databases=["default"]) == []
        migrate("zero")
        assert tables() == set()


def test_an_outbox_that_is_named_later_is_created() -> None:
    migrate()
    migrate(database="other")
    with override_settings(OUTBOX={"DATABASES": ["default", "other"], "TABLE": "sales"}):
        assert told(databases=["default", "other"]) == ["outbox_django.W002"] * 2
        migrate()
        migrate(database="other")
        assert told(databases=["default", "other"]) == []
        assert dialect().create() == []
    assert told(databases=["default"]) == []


def test_an_outbox_that_init_made_stays() -> None:
    dialect().create()
    with closing(dialect().connect()) as table:
        identity = table.identity()
    migrate()
    with closing(dialect().connect()) as table:
        assert table.identity() == identity


def test_routers_and_settings_say_where(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(DATABASE_ROUTERS=[NoOutbox()]):
        migrate()
        assert told(databases=["default"]) == []
    migrate(database="other")
    assert tables() == tables("other") == set()
    call_command("sqlmigrate", "outbox_django", "0001")
    assert "outbox_dead_letters" in capsys.readouterr().out


def test_tests_without_migrations_have_the_outbox() -> None:
    with override_settings(MIGRATION_MODULES={"outbox_django": None}):
        call_command("migrate", run_syncdb=True, verbosity=0)
    assert dialect().create() == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("outbox", "told"),
    [
        ({"TABEL": "x"}, "TABEL"),
        ({"DATABASES": "default"}, "list of aliases"),
        ({"DATABASES": ["orders"]}, "'orders', which DATABASES lacks"),
        ({"TABLE": "shop.outbox"}, "without a schema"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told(outbox: dict[str, Any], told: str) -> None:
    with override_settings(OUTBOX=outbox):
        found = run_checks(databases=["default"])
    [error] = [each for each in found if each.id.startswith("outbox_django")]
    assert told in error.msg
    assert error.is_serious()


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_an_outbox_for_each_tenant_wants_a_pattern(tmp_path: Path) -> None:
    pattern = {"outboxes": {"default": {"outboxTable": "tenant_*.outbox"}}}
    with override_settings(TENANT_APPS=["outbox_django.apps.OutboxConfig"]):
        [warning] = [each for each in run_checks() if each.id == "outbox_django.W004"]
        assert str(pattern) in warning.hint
        with override_settings(OUTBOX={"CONFIG": pattern}):
            assert told() == []
        with override_settings(
            OUTBOX={"CONFIG": {"harvest": {"outboxTable": "outbox", "topics": ["orders*"]}}}
        ):
            assert told() == ["outbox_django.W004"]
        file = tmp_path / "outbox.yaml"
        with override_settings(OUTBOX={"CONFIG": str(file)}):
            file.write_text("outboxes: {default: {outboxTable: 'tenant_*.outbox'}}")
            assert told() == []
            file.write_text("# outboxTable: tenant_*.outbox\nharvest: {engine: inline}")
            assert told() == ["outbox_django.W004"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_database_without_transactions_of_djangos_is_told() -> None:
    connections["default"].settings_dict["AUTOCOMMIT"] = False
    assert told() == ["outbox_django.W001"]
