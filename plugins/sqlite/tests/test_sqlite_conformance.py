"""SQLite keeps the contract of a dialect."""

from __future__ import annotations

from pathlib import Path

import pytest
from outbox_testkit.conformance import DialectConformance, OutboxUnderTest

REFUSING = """
CREATE TRIGGER refused BEFORE INSERT ON {table} WHEN NEW.{condition} BEGIN SELECT RAISE(ABORT, 'refused'); END
"""


class TestSqlite(DialectConformance):
    @pytest.fixture
    def outbox(self, tmp_path: Path) -> OutboxUnderTest:
        options = {"data_source": str(tmp_path / "shop.db")}
        restart = ["DELETE FROM {table}", "DELETE FROM sqlite_sequence WHERE name = '{table}'"]
        return OutboxUnderTest(
            "sqlite",
            options,
            bytes_values={"value_type": "bytes"},
            restart=restart,
            refusing=[REFUSING],
            lease_ahead="strftime('%Y-%m-%d %H:%M:%f', renewed_at, '+1 hour')",
        )
