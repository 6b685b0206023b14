"""What a data source says of itself: never a piece of its password, however it is written."""

from __future__ import annotations

import pytest
from outbox_oracle.data_source import DataSource
from outbox_sdk import ConfigError


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
