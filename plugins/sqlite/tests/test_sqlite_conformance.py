"""SQLite keeps the contract of a dialect."""

from __future__ import annotations

from pathlib import Path

import pytest
from outbox_testkit.conformance import DialectConformance, OutboxUnderTest


class TestSqlite(DialectConformance):
    @pytest.fixture
    def outbox(self, tmp_path: Path) -> OutboxUnderTest:
        return OutboxUnderTest("sqlite", {"data_source": str(tmp_path / "shop.db")})
