"""MySQL and MariaDB do what every dialect must."""

from __future__ import annotations

import pytest
from outbox_testkit.conformance import DialectConformance, OutboxUnderTest

pytestmark = pytest.mark.slow("mysql")


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
