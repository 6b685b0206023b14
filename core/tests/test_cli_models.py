"""``outbox check --models`` says what Alembic would propose for the outbox's tables, and for no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from outbox_api import Level
from outbox_core.cli.models import check_models
from outbox_core.config import configure
from outbox_core.settings import HarvestSettings

from .cli_runner import outbox

MODELS = """
from sqlalchemy import Column, Integer, MetaData, Table
from outbox_api.application.sqlalchemy import outbox_table

metadata = MetaData()
Table("orders", metadata, Column("id", Integer, primary_key=True))
outbox_table(metadata, {options})

class Base:
    metadata = metadata
"""


@pytest.fixture(params=["postgres", "mysql", "mariadb", "sqlite"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> HarvestSettings:
    """An outbox whose tables ``outbox init`` has made."""
    source = (
        tmp_path / "shop.db" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_dsn")
    )
    driver = {"mariadb": "mysql"}.get(request.param, request.param)
    options = {"dialect": driver, "dataSource": str(source), "elector": "static", "engine": "inline"}
    made = configure({"harvest": options}, variables={}).harvest
    made.dialect.create().create()
    return made


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write(folder: Path, module: str, options: str) -> str:
    (folder / f"{module}.py").write_text(MODELS.format(options=options))
    return f"{module}:Base.metadata"


def test_tables_as_the_models_have_them(settings: HarvestSettings, application: Path) -> None:
    models = write(application, f"same_{settings.dialect.driver}", f'"{settings.dialect.driver}"')
    [found] = check_models(models, settings)
    assert found.level is Level.OK


def test_what_differs_is_told(settings: HarvestSettings, application: Path) -> None:
    driver = settings.dialect.driver
    with settings.dialect.create().stash_connection() as connection:
        cursor = connection.cursor()
        cursor.execute("ALTER TABLE outbox ADD COLUMN more integer")
        cursor.execute("DROP TABLE outbox_journal")
        connection.commit()
    found = check_models(write(application, f"other_{driver}", f'"{driver}"'), settings)
    told = [each.message for each in found]
    assert "the column 'outbox.more' is in the database, and not in the models" in told
    assert "the table 'outbox_journal' is in the models, and not in the database" in told
    assert {each.level for each in found} == {Level.WARNING}
    assert not [each for each in told if "orders" in each]


def test_a_type_that_differs_is_told(postgres_dsn: str, application: Path) -> None:
    harvest = {"dataSource": postgres_dsn, "elector": "static", "engine": "inline"}
    file = application / "outbox.yaml"
    file.write_text(json.dumps({"harvest": harvest}))
    configure({"harvest": harvest}, variables={}).harvest.dialect.create().create()
    models = write(application, "binary", '"postgres", value_type="bytea"')
    done = outbox(file, "check", "--models", models, "--json")
    found = [each for each in json.loads(done.stdout)["findings"] if each["part"] == "models"]
    assert [each["message"] for each in found] == [
        "outbox.kafka_value: type is TEXT() in the database, and BYTEA() in the models"
    ]
    assert found[0]["cure"].startswith("migrate the database")


@pytest.mark.parametrize("models", ["nowhere:metadata", "json:metadata", ":metadata", "json"])
def test_models_that_cannot_be_imported_are_told(models: str, tmp_path: Path) -> None:
    harvest = {
        "dialect": "sqlite",
        "dataSource": str(tmp_path / "shop.db"),
        "elector": "static",
        "engine": "inline",
    }
    [found] = check_models(models, configure({"harvest": harvest}, variables={}).harvest)
    assert f"'{models}' cannot be imported" in found.message
    assert "module:metadata" in found.cure
