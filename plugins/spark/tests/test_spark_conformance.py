"""The engine 'spark' keeps the contract of an engine."""

from __future__ import annotations

import pytest
from outbox_testkit.conformance import EngineConformance, EngineUnderTest


@pytest.mark.spark
@pytest.mark.slow
class TestSpark(EngineConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> EngineUnderTest:
        return EngineUnderTest("spark")
