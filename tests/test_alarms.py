"""The short form of ``python -m tests.alarms``, and every query of the dashboard, on real services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from outbox_servers.services import Kafka, Postgres

from deploy.alerts import alarms
from deploy.series import DESTINATION, LANE, OUTBOX, STEP

from .alarms.faults import CLUSTER, FAULTS, LANES, at_once, forget_cluster, kill_all, lock_lane, poison
from .alarms.site import Servers, Site
from .alarms.trial import PATIENCE, Outcome, conduct
from .harvesters import Measure, until
from .test_deploy import PANELS

FACTOR = 30.0
NAMES = re.compile(r"\b(?:outbox|messaging)_\w+")
"""Finds the names of metrics in a query; and these labels:"""
LABELS = {OUTBOX, LANE, STEP, DESTINATION}
VARIABLES = {"$__rate_interval": "10s", "$__interval": "10s", "$job": ".*", "$outbox": ".*"}
"""What Grafana puts in their places."""


@pytest.fixture(scope="module")
def site(
    postgres_server: Postgres, kafka_broker: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("alarms") / "alarms"
    harvest = {**LANES, **CLUSTER}
    with Site(Servers(postgres_server, kafka_broker), folder, FACTOR, harvest) as site:
        yield site


def test_every_query_of_the_dashboard_finds_series_and_every_metric_is_served(site: Site) -> None:
    [parked] = [each for each in FAULTS if each.strike is poison]
    queries = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in PANELS
        for target in panel["targets"]
    }
    empty = dict(queries)
    named = {name for query in queries.values() for name in NAMES.findall(query)}
    named |= {name for alarm in alarms() for name in NAMES.findall(alarm.expression)}
    named -= LABELS

    def seen() -> bool:
        """Looks for what was not found yet: a scrape may come too late on a busy machine."""
        for title in [each for each in empty if series(site, empty[each])]:
            del empty[title]
        named.difference_update(each.labels["__name__"] for each in site.prometheus.query('{job="outbox"}'))
        return not empty and not named

    with parked.strike(site):
        until(lambda: "OutboxParkedKeys" in site.firing(), "the alarm that a panel shows", PATIENCE)
        with suppress(AssertionError):
            until(seen, "every query finds series", 90, pause=0.5)
    assert (empty, named) == ({}, set())


def series(site: Site, query: str) -> bool:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    assert "$" not in query
    return bool(site.prometheus.query(query))


slow = pytest.mark.slow


@pytest.mark.parametrize(
    "strikes",
    [pytest.param([poison], marks=slow), [kill_all], pytest.param([lock_lane, forget_cluster], marks=slow)],
)
def test_alarms_fire_and_clear(site: Site, measure: Measure, strikes: list[object]) -> None:
    fault = at_once([each for each in FAULTS if each.strike in strikes])
    outcomes: list[Outcome] = conduct(site, fault, fault.alarms)
    assert len(outcomes) >= len(strikes)
    assert {each.alarm for each in outcomes} == set(fault.alarms)
    for each in outcomes:
        measure(f"{each.alarm} fires after", each.fired)
        measure(f"{each.alarm} clears after", each.cleared)
