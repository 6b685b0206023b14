"""The affinities 'cluster' and 'none' keep the contract of an affinity."""

from __future__ import annotations

import pytest
from outbox_testkit.conformance import AffinityConformance, AffinityUnderTest


class TestCluster(AffinityConformance):
    @pytest.fixture(params=["ranked", "all"])
    def affinity(self, request: pytest.FixtureRequest) -> AffinityUnderTest:
        options = {"cluster_id": 2, "clusters_count": 3, "maximum_delay": 60.0, "takeover": request.param}
        return AffinityUnderTest("cluster", options)


class TestNone(AffinityConformance):
    @pytest.fixture
    def affinity(self) -> AffinityUnderTest:
        return AffinityUnderTest("none")
