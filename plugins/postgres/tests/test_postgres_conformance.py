"""PostgreSQL does what every dialect must."""

from __future__ import annotations

import pytest
from outbox_testkit.conformance import DialectConformance, OutboxUnderTest


class TestPostgres(DialectConformance):
    @pytest.fixture
    def outbox(self, postgres_dsn: str) -> OutboxUnderTest:
        return OutboxUnderTest(
            "postgres", {"data_source": postgres_dsn}, bytes_values={"value_type": "bytea"}
        )
