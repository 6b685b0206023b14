"""The suite for affinities: which rows a cluster takes, and what it says of where rows were written.

The complete test file of an affinity::

    class TestCluster(AffinityConformance):
        @pytest.fixture
        def affinity(self):
            return AffinityUnderTest("cluster", {"cluster_id": 2, "clusters_count": 3, "maximum_delay": 60.0})
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from outbox_api import Affinity, Origin, Seam, find
from outbox_api.seams.affinity import MAX_CLUSTER


@dataclass(frozen=True)
class AffinityUnderTest:
    """An affinity.

    Attributes:
        driver: Its driver name.
        options: Its options, by the names of their fields.
    """

    driver: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def create(self) -> Affinity:
        """Makes the affinity, of options that have been in another process."""
        driver = find(Seam.AFFINITY, self.driver)
        return driver.create(pickle.loads(pickle.dumps(driver.options(**self.options))))


class AffinityConformance:
    """What every affinity must do."""

    @pytest.fixture
    def made(self, affinity: AffinityUnderTest) -> Affinity:
        """The affinity."""
        return affinity.create()

    def test_the_answers_are_always_the_same(self, affinity: AffinityUnderTest) -> None:
        one, other = affinity.create(), affinity.create()
        for taken_over in ((), (1,), (1, 7)):
            assert list(one.eligible(taken_over)) == list(other.eligible(taken_over))
            assert list(one.eligible(taken_over)) == list(one.eligible(taken_over))
        assert one.origin() == other.origin()

    def test_the_first_source_has_rows_of_any_age(self, made: Affinity) -> None:
        conditions = made.eligible()
        assert all(condition.column and condition.older_than >= 0 for condition in conditions)
        assert not conditions or conditions[0].older_than == 0
        assert len({(each.column, each.value) for each in conditions}) == len(conditions)

    def test_a_cluster_that_is_taken_over_has_no_age(self, made: Affinity) -> None:
        origin = made.origin()
        if origin is None:
            assert made.eligible([1]) == made.eligible(), "rows do not tell where they were written"
            return
        for cluster in (*origin.known, MAX_CLUSTER):
            ages = [each.older_than for each in made.eligible([cluster]) if each.value == cluster]
            assert ages == [0], f"cluster {cluster}"

    def test_an_origin_names_the_own_cluster_and_the_column_of_all_conditions(self, made: Affinity) -> None:
        origin = made.origin()
        if origin is None:
            return
        assert isinstance(origin, Origin)
        assert origin.own in origin.known
        assert list(origin.known) == sorted({*origin.known})
        assert origin.known[0] >= 1
        assert origin.known[-1] <= MAX_CLUSTER
        assert {each.column for each in made.eligible()} == {origin.column}
        assert made.eligible()[0].value == origin.own
