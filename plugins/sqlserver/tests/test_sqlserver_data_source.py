"""What a data source says of itself: never a piece of its password, however it is written."""

from __future__ import annotations

import pytest
from outbox_api import ConfigError
from outbox_sqlserver.options import DataSource


def told(text: str) -> str:
    try:
        source = DataSource.parse(text)
    except ConfigError as error:
        return str(error)
    return f"{source!r} {source.address}"


@pytest.mark.parametrize(
    "text",
    [
        "Server=h;Pwd=abc;Secret;Database=q",
        "Server=h;Pwd=abc;Secret=1;Database=q",
        "Server=h;Pwd={a;Secret};Database=q",
        "Server=h;Pwd=abc;Encrypt=Secret",
        "Server=h,Secret;Pwd=abc",
        "mssql://u:12/Secret@h/q",
        "mssql://u:12?Secret@h/q",
        "mssql://u:p/Secret@h/q",
        "Secret",
    ],
)
def test_no_piece_of_a_password_is_told(text: str) -> None:
    assert "Secret" not in told(text)
    assert "secret" not in told(text).lower()


def test_a_mistyped_key_is_told_by_the_right_one() -> None:
    assert "did you mean 'database'?" in told("Server=h;Databse=q")
