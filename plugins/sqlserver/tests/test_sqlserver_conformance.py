"""SQL Server does what every dialect must. See ``conftest.py`` for where it comes from."""

from __future__ import annotations

import pytest
from outbox_testkit.conformance import DialectConformance, OutboxUnderTest


class TestSqlServer(DialectConformance):
    @pytest.fixture
    def outbox(self, outbox: OutboxUnderTest) -> OutboxUnderTest:
        return outbox
