"""What a data source says of itself: never a piece of its password, however it is written."""

from __future__ import annotations

import pytest
from outbox_api import ConfigError
from outbox_mysql.options import DataSource


def told(text: str) -> str:
    try:
        source = DataSource.parse(text)
    except ConfigError as error:
        return str(error)
    return f"{source!r} {source.address}"


@pytest.mark.parametrize(
    "text",
    [
        "mysql://u:p/Secret@localhost/x",
        "mysql://u:12/Secret@localhost/x",
        "mysql://u:12?Secret@localhost/x",
        "mysql://u:12#Secret@localhost/x",
        "mysql://u:12?Secret=1",
        "mysql://u:p@h/x?ssl-mode=Secret",
        "mysql://u:Secret@h/x",
        "Secret",
    ],
)
def test_no_piece_of_a_password_is_told(text: str) -> None:
    assert "Secret" not in told(text)
    assert "secret" not in told(text).lower()


def test_an_encoded_password_may_hold_anything() -> None:
    assert DataSource.parse("mysql://u:p%2FSe%40c%3Fret@h/x").password == "p/Se@c?ret"
