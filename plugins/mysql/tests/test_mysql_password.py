"""A password apart from the data source, and credentials in files, on real servers."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from outbox_api import AccessDenied, ConfigError, DriverError, FileText
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_servers.services.external import connect_mysql
from outbox_testkit.conformance import OutboxUnderTest

ODD = """it's "my" \\ p@ss/w%rd; {x} #ö?&=: '"""

SetPassword = Callable[[str], None]


@pytest.fixture
def login(under: OutboxUnderTest) -> Iterator[tuple[str, SetPassword]]:
    """A data source without a password, of an account whose password the test sets."""
    admin_source = str(under.options["data_source"])
    address, name = urlsplit(admin_source), f"login_{uuid4().hex[:8]}"
    with closing(connect_mysql(admin_source.partition("?")[0], autocommit=True)) as admin:
        cursor = admin.cursor()
        cursor.execute(f"CREATE USER {name} IDENTIFIED BY 'initial'")
        cursor.execute(f"GRANT ALL ON *.* TO {name}")

        def set_password(password: str) -> None:
            cursor.execute(f"ALTER USER {name} IDENTIFIED BY %s", [password])

        source = address._replace(netloc=f"{name}@{address.hostname}:{address.port}", query="").geturl()
        MySqlDialect(MySqlOptions(data_source=admin_source)).create()
        yield source, set_password
        cursor.execute(f"DROP USER {name}")


def refusal(options: MySqlOptions) -> DriverError:
    with pytest.raises(DriverError) as caught:
        MySqlDialect(options).connect()
    return caught.value


def test_a_password_needs_no_encoding(login: tuple[str, SetPassword], tmp_path: Path) -> None:
    source, set_password = login
    set_password(ODD)
    file = tmp_path / "password"
    file.write_text(f"{ODD}\n")
    for password in (ODD, FileText((file,))):
        options = MySqlOptions(data_source=source, password=password)
        MySqlDialect(options).connect().close()
        MySqlDialect(options).stash_connection().close()
        assert MySqlDialect(options).secrets == (ODD,)
        assert ODD not in f"{options!r} {options.source!r}"


def test_a_password_is_read_anew_at_each_connect(login: tuple[str, SetPassword], tmp_path: Path) -> None:
    source, set_password = login
    file = tmp_path / "password"
    file.write_text("first")
    apart = MySqlDialect(MySqlOptions(data_source=source, password=FileText((file,))))
    user = f"{urlsplit(source).username}"
    whole = FileText((f"mysql://{user}:", file, source.removeprefix(f"mysql://{user}")))
    within = MySqlDialect(MySqlOptions(data_source=whole))
    for password in ("first", "second"):
        set_password(password)
        file.write_text(password)
        apart.connect().close()
        within.connect().close()


def test_a_session_that_the_server_ended_connects_with_the_new_password(
    login: tuple[str, SetPassword], tmp_path: Path
) -> None:
    source, set_password = login
    file = tmp_path / "password"
    file.write_text("first")
    set_password("first")
    options = MySqlOptions(data_source=source, password=FileText((file,)), idle_timeout=100.0)
    with closing(MySqlDialect(options).session()) as session:
        [(number,)] = session.query("ask", "SELECT CONNECTION_ID()")
        set_password("second")
        file.write_text("second")
        with closing(MySqlDialect(options).stash_connection()) as other:
            other.cursor().execute(f"KILL {number}")
        session.connection._used -= 90  # it has been silent for so long
        [(another,)] = session.query("ask", "SELECT CONNECTION_ID()")
        assert another != number


def test_a_refused_login_is_final_unless_a_file_may_change(
    login: tuple[str, SetPassword], tmp_path: Path
) -> None:
    source, set_password = login
    set_password("right")
    error = refusal(MySqlOptions(data_source=source, password="wr0ng"))
    assert isinstance(error, AccessDenied)
    assert not error.retryable
    file = tmp_path / "password"
    file.write_text("wr0ng")
    in_file = MySqlOptions(data_source=source, password=FileText((file,)))
    error = refusal(in_file)
    assert isinstance(error, AccessDenied)
    assert error.retryable
    assert "Access denied for user" in str(error)
    assert f"see that '{file}', which is read anew at each attempt" in str(error)
    assert "wr0ng" not in "".join(traceback.format_exception(error))
    file.unlink()
    error = refusal(in_file)
    assert error.retryable
    assert f"cannot read the file '{file}'" in str(error)


def test_two_passwords_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="leave one of them out") as caught:
        MySqlOptions(data_source="mysql://u:one-s3cret@h/shop", password="two-s3cret")
    assert "s3cret" not in str(caught.value)
