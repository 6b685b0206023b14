"""NELI does what every elector must, on a real broker."""

from __future__ import annotations

import pytest
from outbox_neli_kafka import NeliOptions
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest

SESSION = 6.0
"""Seconds: the least that brokers permit by default."""


class TestNeli(ElectorConformance):
    @pytest.fixture
    def elector(self, kafka_bootstrap: str, topic: str) -> ElectorUnderTest:
        options = NeliOptions(
            {"bootstrap.servers": kafka_bootstrap}, leader_group_id=topic, session_timeout=SESSION
        )
        return ElectorUnderTest("neli-kafka", options, SESSION)
