"""Options, table names and data sources."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from outbox_api import ConfigError, DriverError, Seam, find
from outbox_postgres import PostgresOptions
from outbox_postgres.data_source import DataSource
from outbox_postgres.options import QuotedName


def parameters(text: str) -> dict[str, str]:
    return DataSource(PostgresOptions(data_source=text)).parameters


def test_the_driver_is_found_by_its_name() -> None:
    driver = find(Seam.DIALECT, "postgres")
    assert driver.options is PostgresOptions
    assert driver.insert is not None


def test_finding_the_driver_loads_no_database_driver() -> None:
    code = (
        "import sys; from outbox_api import Seam, find; d = find(Seam.DIALECT, 'postgres'); "
        "d.create(d.options()).ddl(); d.insert('outbox', {}); print('psycopg' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_options_are_picklable_and_keep_the_data_source_to_themselves() -> None:
    options = PostgresOptions(data_source="host=h password=s3cret")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "s3cret" not in repr(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value_type": "json"}, "text or bytea"),
        ({"fillfactor": 5}, "10 to 100"),
        ({"fence_table": "f" * 56}, "can have 55 bytes"),
        ({"lock_timeout": -1.0}, "negative"),
        ({"table": "a.b.c"}, "not a table name"),
        ({"table": "out-box"}, "double quotes"),
        ({"fence_table": ""}, "not a table name"),
        ({"dead_letter_table": "a-b"}, "not a table name"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PostgresOptions(**options)


@pytest.mark.parametrize(
    ("text", "schema", "table"),
    [
        ("outbox", "", "outbox"),
        ("App.Outbox", "app", "outbox"),
        ('"App"."Out.box"', "App", "Out.box"),
        ('"a""b"', "", 'a"b'),
        ("größe.tabelle_1$", "größe", "tabelle_1$"),
    ],
)
def test_table_names_are_read_as_postgresql_reads_them(text: str, schema: str, table: str) -> None:
    assert QuotedName.parse(text) == (schema, table)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a b", "1a", '"', '""', "a;drop table b", 'a"b"'])
def test_what_is_no_table_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        QuotedName.parse(text)


def test_fence_and_dead_letters_live_beside_the_outbox_unless_they_name_a_schema() -> None:
    assert PostgresOptions(table="app.outbox").fence == ("app", "outbox_fence")
    assert PostgresOptions(table="app.outbox", fence_table="ops.fence").fence == ("ops", "fence")
    assert PostgresOptions(table="app.outbox").dead_letters == ("app", "outbox_dead_letters")
    assert PostgresOptions(table="app.outbox", dead_letter_table="ops.dead").dead_letters == ("ops", "dead")


def test_an_empty_password_does_not_swallow_the_next_key() -> None:
    found = parameters("host=localhost port=5432 user=postgres password= dbname=postgres sslmode=disable")
    assert "password" not in found
    assert (found["dbname"], found["sslmode"], found["user"]) == ("postgres", "disable", "postgres")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("user=a password=", {"user": "a"}),
        ("password=  dbname=x", {"dbname": "x"}),
        ("password=dbname=x", {"password": "dbname=x"}),
        ("password= s3cret dbname=x", {"password": "s3cret", "dbname": "x"}),
        ("password= not_a_key=1 dbname=x", {"password": "not_a_key=1", "dbname": "x"}),
        ("password='it''s' ", None),
        (r"password='a\' dbname=x' dbname=y", {"password": "a' dbname=x", "dbname": "y"}),
        (r"password=a\ b dbname=y", {"password": "a b", "dbname": "y"}),
        ("options='-c a= -c dbname=z' dbname=y", {"options": "-c a= -c dbname=z", "dbname": "y"}),
        ("host = h port = 1", {"host": "h", "port": "1"}),
        ("", {}),
        (
            "postgresql://u:p%40ss@h:1/d?sslmode=disable",
            {"user": "u", "password": "p@ss", "host": "h", "dbname": "d"},
        ),
    ],
)
def test_data_sources_are_read_as_libpq_reads_them(text: str, wanted: dict[str, str] | None) -> None:
    if wanted is None:
        with pytest.raises(DriverError):
            parameters(text)
    else:
        found = parameters(text)
        assert {
            key: found.get(key)
            for key in ("user", "password", "host", "port", "dbname", "options")
            if key in wanted
        } == wanted


def test_defaults_are_added_and_do_not_replace_what_is_written() -> None:
    found = parameters("")
    assert (found["application_name"], found["connect_timeout"], found["tcp_user_timeout"]) == (
        "outbox",
        "5",
        "10000",
    )
    assert "target_session_attrs" not in found
    found = parameters("application_name=shop connect_timeout=60 host=a,b")
    assert (found["application_name"], found["connect_timeout"]) == ("shop", "60")
    assert found["target_session_attrs"] == "read-write"


@pytest.mark.parametrize(
    "text",
    [
        "host=h password=my s3cret dbname=x",
        "host=h password='s3cret",
        "s3cret",
        "postgresql://u:my s3cret@h/d",
        "postgresql://u:s3cret%zz@h/d",
        "pasword=s3cret",
    ],
)
def test_a_data_source_that_cannot_be_parsed_is_not_quoted(text: str) -> None:
    with pytest.raises(DriverError) as caught:
        DataSource(PostgresOptions(data_source=text))
    assert not caught.value.retryable
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("command", ["check", "init", "run", "status"])
def test_without_libpq_the_error_names_the_cure(command: str, tmp_path: Path) -> None:
    (tmp_path / "outbox.yaml").write_text("harvest:\n  engine: inline\n  elector: lease\n")
    missing = {**os.environ, "PSYCOPG_IMPL": "c"}  # is not installed, as if there were neither it nor libpq
    outbox = [sys.executable, "-m", "outbox_core", command]
    done = subprocess.run(outbox, cwd=tmp_path, env=missing, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "psycopg cannot be loaded; run: pip install 'psycopg[binary]', or" in done.stderr
    assert "OUTBOX-PLUGIN" in done.stderr
