"""A password apart from the data source, and credentials in files, on a real server."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from outbox_api import AccessDenied, DriverError, FileText
from outbox_postgres import PostgresDialect, PostgresOptions
from psycopg import sql
from psycopg.conninfo import make_conninfo

ODD = """it's "my" \\ p@ss/w%rd; {x} #ö?&=: '"""

SetPassword = Callable[[str], None]


@pytest.fixture
def login(postgres_dsn: str) -> Iterator[tuple[str, SetPassword]]:
    """A data source without a password, of a role whose password the test sets."""
    name = f"login_{uuid4().hex[:8]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:

        def set_password(password: str) -> None:
            statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                sql.Identifier(name), sql.Literal(password)
            )
            admin.execute(statement)

        admin.execute(f"CREATE ROLE {name} SUPERUSER LOGIN")
        PostgresDialect(PostgresOptions(data_source=postgres_dsn)).create()
        yield make_conninfo(postgres_dsn, user=name, password=""), set_password
        admin.execute(f"DROP ROLE {name}")


def refusal(options: PostgresOptions) -> DriverError:
    with pytest.raises(DriverError) as caught:
        PostgresDialect(options).connect()
    return caught.value


def test_a_password_needs_no_quotes(login: tuple[str, SetPassword], tmp_path: Path) -> None:
    source, set_password = login
    set_password(ODD)
    file = tmp_path / "password"
    file.write_text(f"{ODD}\n")
    for password in (ODD, FileText((file,))):
        options = PostgresOptions(data_source=source, password=password)
        PostgresDialect(options).connect().close()
        with PostgresDialect(options).stash_connection() as connection:
            assert connection.info.password == ODD
        assert ODD not in repr(options)


def test_a_password_is_read_anew_at_each_connect(login: tuple[str, SetPassword], tmp_path: Path) -> None:
    source, set_password = login
    file = tmp_path / "password"
    file.write_text("first")
    set_password("first")
    apart = PostgresDialect(PostgresOptions(data_source=source, password=FileText((file,))))
    whole = FileText((f"{source} password=", file))
    within = PostgresDialect(PostgresOptions(data_source=whole))
    for password in ("first", "second"):
        set_password(password)
        file.write_text(password)
        apart.connect().close()
        within.connect().close()


def test_a_refused_login_is_final_unless_a_file_may_change(
    login: tuple[str, SetPassword], tmp_path: Path
) -> None:
    source, set_password = login
    set_password("right")
    error = refusal(PostgresOptions(data_source=source, password="wr0ng"))
    assert isinstance(error, AccessDenied)
    assert not error.retryable
    file = tmp_path / "password"
    file.write_text("wr0ng")
    in_file = PostgresOptions(data_source=source, password=FileText((file,)))
    error = refusal(in_file)
    assert isinstance(error, AccessDenied)
    assert error.retryable
    assert "password authentication failed" in str(error)
    assert f"see that '{file}', which is read anew at each attempt" in str(error)
    assert "wr0ng" not in "".join(traceback.format_exception(error))
    file.unlink()
    error = refusal(in_file)
    assert error.retryable
    assert f"cannot read the file '{file}'" in str(error)
    file.write_text("")
    assert refusal(in_file).retryable


def test_two_passwords_are_one_too_many(login: tuple[str, SetPassword]) -> None:
    source, _ = login
    error = refusal(PostgresOptions(data_source=f"{source} password=one-s3cret", password="two-s3cret"))
    assert not error.retryable
    assert "leave one of them out" in str(error)
    assert "s3cret" not in "".join(traceback.format_exception(error))
