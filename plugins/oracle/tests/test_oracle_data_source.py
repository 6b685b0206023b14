"""What a data source says of itself: never a piece of its password, however it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import oracledb
import pytest
from outbox_api import AccessDenied, ConfigError, FileText
from outbox_oracle import OracleDialect, OracleOptions
from outbox_oracle.options import DataSource

from .fake_oracle import database_error


def told(text: str) -> str:
    try:
        source = DataSource.parse(text)
    except ConfigError as error:
        return str(error)
    return source.address


@pytest.mark.parametrize(
    "text",
    [
        "oracle://u:p/Secret@h:1521/s",
        "oracle://u:12/Secret@h:1521/s",
        "oracle://u:12?Secret@h:1521/s",
        "oracle://u:12#Secret@h:1521/s",
        "oracle://u:p@h/s?protocol=Secret",
        "u/p@(DESCRIPTION=(ADDRESS=(PROTOCOL=tcps)(HOST=h)(PORT=1))(SECURITY=(WALLET_PASSWORD=Secret)))",
        "u/Se@Secret@h:1521/s",
        "(DESCRIPTION=(SECURITY=(WALLET_PASSWORD=Secret)))",
    ],
)
def test_no_piece_of_a_password_is_told(text: str) -> None:
    assert "Secret" not in told(text)
    assert "secret" not in told(text).lower()


def test_an_encoded_password_may_hold_anything() -> None:
    assert DataSource.parse("oracle://u:p%2FSe%40c%3Fret@h/s").password == "p/Se@c?ret"


def test_a_descriptor_is_told_by_its_address() -> None:
    source = DataSource.parse(
        "u/p@(DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST = db.local)(PORT=1521))"
        "(CONNECT_DATA=(SERVICE_NAME=shop)))"
    )
    assert source.address == "db.local:1521/shop"


ODD = """it's "my" \\ p@ss/w%rd; {x} #ö?&=: '"""


def test_a_password_stands_apart_and_needs_no_quotes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[str, str, str]] = []

    def connect(**given: Any) -> None:
        seen.append((given["user"], given["password"], given["wallet_password"]))

    monkeypatch.setattr(oracledb, "connect", connect)
    file = tmp_path / "password"
    file.write_text(f"{ODD}\n")
    kept = FileText((file,))
    for source in ("oracle://scott@h/s", "scott@h/s"):
        options = OracleOptions(data_source=source, password=kept, wallet_password=kept)
        OracleDialect(options).open_as_application()
        assert OracleDialect(options).secrets == [ODD, ODD]
    file.write_text("new")
    OracleDialect(options).open_as_application()
    assert seen == [("scott", ODD, ODD)] * 2 + [("scott", "new", "new")]
    for twice in ("oracle://scott:tiger@h/s", "scott/tiger@h/s"):
        with pytest.raises(ConfigError, match="leave one of them out"):
            OracleOptions(data_source=twice, password=ODD)


def test_a_refused_login_is_final_unless_a_file_may_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def connect(**_: Any) -> None:
        raise database_error(1017, "invalid username/password; logon denied")

    monkeypatch.setattr(oracledb, "connect", connect)
    file = tmp_path / "password"
    file.write_text("wrong")
    for password, retryable in (("wrong", False), (FileText((file,)), True)):
        options = OracleOptions(data_source="scott@h/s", password=password)
        with pytest.raises(AccessDenied, match="ORA-01017") as caught:
            OracleDialect(options).connect()
        assert caught.value.retryable is retryable
