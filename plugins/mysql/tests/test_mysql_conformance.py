"""MySQL and MariaDB do what every dialect must."""

from __future__ import annotations

from dataclasses import replace

import pytest
from outbox_testkit.conformance import DailyConformance, DialectConformance, OutboxUnderTest

pytestmark = pytest.mark.slow


class TestMySql(DialectConformance):
    """All of it, on MySQL."""

    @pytest.fixture
    def outbox(self, on_mysql: OutboxUnderTest) -> OutboxUnderTest:
        return on_mysql


class TestMariaDb(DialectConformance):
    """All of it, on MariaDB."""

    @pytest.fixture
    def outbox(self, on_mariadb: OutboxUnderTest) -> OutboxUnderTest:
        return on_mariadb


class TestByDay(DailyConformance):
    """Either server in turn, in partitions."""

    @pytest.fixture
    def outbox(self, under: OutboxUnderTest) -> OutboxUnderTest:
        return replace(under, options={**under.options, "by_day": True})
