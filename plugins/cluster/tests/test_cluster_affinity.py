"""Which rows each cluster takes, and when."""

from __future__ import annotations

import pickle
from itertools import permutations
from typing import Any

import pytest
from outbox_api import ColumnIs, ConfigError
from outbox_api.application.registry import Seam, find
from outbox_cluster import ClusterAffinity, ClusterOptions, outbox_affinity


def affinity(own: int, count: int = 3, **others: Any) -> ClusterAffinity:
    options = {"cluster_id": own, "clusters_count": count, "maximum_delay": 600.0, **others}
    return ClusterAffinity(ClusterOptions(**options))


def ages(own: int, count: int = 3, taken_over: tuple[int, ...] = (), **others: Any) -> dict[int, float]:
    """Returns for each cluster how old its rows must be, in the order of the conditions."""
    conditions = affinity(own, count, **others).eligible(taken_over)
    return {condition.value: condition.older_than for condition in conditions}  # type: ignore[misc]


def test_the_table_of_the_readme():
    assert ages(1) == {1: 0.0, 3: 600.0, 2: 1200.0}
    assert ages(2) == {2: 0.0, 1: 600.0, 3: 1200.0}
    assert ages(3) == {3: 0.0, 2: 600.0, 1: 1200.0}


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_no_two_clusters_take_over_at_the_same_age(count: int):
    for origin in range(1, count + 1):
        by_cluster = [ages(own, count)[origin] for own in range(1, count + 1)]
        assert sorted(by_cluster) == [600.0 * rank for rank in range(count)]
        assert by_cluster[origin - 1] == 0.0


def test_the_rule_of_the_article_has_all_others_take_over_at_once():
    assert ages(2, 4, takeover="all") == {2: 0.0, 1: 600.0, 3: 600.0, 4: 600.0}


@pytest.mark.parametrize("own", [1, 2, 3])
def test_the_own_cluster_comes_first_then_the_nearest(own: int):
    conditions = list(ages(own).items())
    assert conditions[0] == (own, 0.0)
    assert [age for _, age in conditions] == sorted(age for _, age in conditions)


def test_clusters_that_are_taken_over_deliberately_have_no_age():
    assert ages(1, taken_over=(2,)) == {1: 0.0, 3: 600.0, 2: 0.0}
    assert ages(1, taken_over=(1,)) == ages(1)


def test_orphans_are_taken_only_if_told():
    assert 5 not in ages(1)
    assert ages(1, taken_over=(7, 5)) == {1: 0.0, 3: 600.0, 2: 1200.0, 5: 0.0, 7: 0.0}


def test_the_answer_does_not_depend_on_the_order_of_the_clusters_taken_over():
    answers = {tuple(affinity(1).eligible(order)) for order in permutations((2, 5, 9))}
    assert len(answers) == 1


def test_a_single_cluster_takes_its_own_rows_only():
    assert ages(1, 1) == {1: 0.0}


def test_ages_count_from_the_arrival_column():
    conditions = affinity(1, arrival_column="arrived", column="region").eligible()
    assert conditions[1] == ColumnIs("region", 3, 600.0, "arrived")
    assert affinity(1).eligible()[1] == ColumnIs("cluster_id", 3, 600.0, "create_time")


def test_the_origin():
    origin = affinity(
        2, column="region", arrival_column="arrived", existing_rows=3, replicas={1: "a", 2: "b"}
    ).origin()
    assert (origin.column, origin.own, origin.known) == ("region", 2, (1, 2, 3))
    assert (origin.existing, origin.arrival, origin.replicas) == (3, "arrived", {1: "a"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cluster_id": 0}, "clusterID is 0; clusters have the numbers 1 to 3"),
        ({"cluster_id": 4}, "clusterID is 4; clusters have the numbers 1 to 3"),
        ({"clusters_count": 0}, "clustersCount is 0; it can be 1 to 9000"),
        ({"clusters_count": 9001}, "clustersCount is 9001"),
        ({"maximum_delay": 0.0}, "maximumDelay is 0 s; it must be more than 0 s"),
        ({"maximum_delay": -1.0}, "maximumDelay is -1 s"),
        ({"takeover": "some"}, "takeover is 'some'; it can be ranked or all"),
        ({"existing_rows": 4}, "existingRows is 4"),
        ({"replicas": {4: "secret"}}, "a cluster of replicas is 4"),
        ({"column": ""}, "column is empty"),
        ({"arrival_column": "cluster_id"}, "column and arrivalColumn are both 'cluster_id'"),
        ({"column": "id"}, "column is 'id', which every outbox has"),
        ({"arrival_column": "CREATE_TIME"}, "arrivalColumn is 'CREATE_TIME', which every outbox has"),
    ],
)
def test_options_that_make_no_sense(wrong: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        affinity(**{"own": wrong.pop("cluster_id", 1), **wrong})
    assert "secret" not in str(caught.value)


def test_the_environment_gives_defaults(monkeypatch: pytest.MonkeyPatch):
    for name, value in {
        "OUTBOX_CLUSTER_ID": "2",
        "OUTBOX_CLUSTERS_COUNT": " 3 ",
        "OUTBOX_MAXIMUM_DELAY": "10m",
    }.items():
        monkeypatch.setenv(name, value)
    options = ClusterOptions()
    assert (options.cluster_id, options.clusters_count, options.maximum_delay) == (2, 3, 600.0)
    assert ClusterOptions(cluster_id=3).cluster_id == 3
    monkeypatch.setenv("OUTBOX_MAXIMUM_DELAY", "1.5")
    assert ClusterOptions().maximum_delay == 1.5


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "OUTBOX_CLUSTER_ID",
            "two",
            "OUTBOX_CLUSTER_ID in the environment is 'two', which is no whole number",
        ),
        ("OUTBOX_CLUSTERS_COUNT", "-3", "OUTBOX_CLUSTERS_COUNT in the environment is '-3'"),
        (
            "OUTBOX_MAXIMUM_DELAY",
            "10 minutes",
            "OUTBOX_MAXIMUM_DELAY in the environment is '10 minutes'; write seconds",
        ),
        ("OUTBOX_CLUSTER_ID", "", "set clusterID, or OUTBOX_CLUSTER_ID in the environment"),
        ("OUTBOX_MAXIMUM_DELAY", "", "set maximumDelay, or OUTBOX_MAXIMUM_DELAY in the environment"),
    ],
)
def test_an_environment_that_makes_no_sense(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    for other in ("OUTBOX_CLUSTER_ID", "OUTBOX_CLUSTERS_COUNT", "OUTBOX_MAXIMUM_DELAY"):
        monkeypatch.setenv(other, "1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        ClusterOptions()


def test_what_an_option_says_needs_no_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OUTBOX_CLUSTER_ID", "nonsense")
    assert affinity(2).origin().own == 2


def test_replicas_are_secrets_and_options_travel():
    options = ClusterOptions(
        cluster_id=1, clusters_count=2, maximum_delay=1.0, replicas={2: "password=secret"}
    )
    assert "secret" not in repr(options)
    assert "secret" not in repr(ClusterAffinity(options).origin())
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_registry_finds_the_driver():
    assert find(Seam.AFFINITY, "cluster") == outbox_affinity()
