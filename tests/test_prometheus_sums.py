"""Counters as a real Prometheus sees them through takeovers: none goes back, and their sums are what arrived.

Prometheus scrapes each second. Each process has a series of its own that begins at 0 with the process. So the
last value of a series is its increase, and the sum of all last values is what all processes have published.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing

import pytest
from outbox_console.prometheus import exported
from outbox_core.monitoring import names
from outbox_core.monitoring.names import METRICS, Kind
from outbox_servers.services import PrometheusServer

from deploy.series import PUBLISHED

from .alarms.front import ANY_PORT, Front
from .harvesters import CLOCK_STEP, Fleet, Harvester, Measure, until
from .shop import Shop

SESSION = 10.0
"""Seconds: longer than a busy machine keeps a process waiting."""
NELI = {"driver": "neli-kafka", "sessionTimeout": f"{SESSION:g}s", "heartbeatTimeout": "6s"}
START = {"inline": 60.0, "spark": 150.0}
"""Seconds that a harvester may take to lead."""
AT_REST = 300
"""Records that are published before the first leader is killed, and counted."""
SENT = exported(names.SENT_MESSAGES)
COUNTERS = '{job="outbox", __name__=~".+_(total|count|sum|bucket)"}'


class Watch:
    """A fleet of which each process has a place that Prometheus scrapes from the beginning.

    Args:
        fleet: The fleet.
        fronts: Name → its place.
        prometheus: The server.
    """

    def __init__(self, fleet: Fleet, fronts: dict[str, Front], prometheus: PrometheusServer) -> None:
        self._fleet = fleet
        self._fronts = fronts
        self._prometheus = prometheus

    def start(self, name: str, engine: str = "inline") -> Harvester:
        harvester = self._fleet.start(
            name,
            engine=engine,
            elector=NELI,
            http={"listen": ANY_PORT},
            # What is only late counts as failed, and is on the topic all the same.
            producerKafkaConfig={"delivery.timeout.ms": 9000},
        )
        self._fronts[name].harvester = harvester
        return harvester

    def published(self) -> int:
        """Returns what all processes have published, those that have ended, too."""
        return round(self._one(f"sum(max_over_time({SENT}{{{PUBLISHED}}}[1h]))"))

    def seen(self, name: str) -> float:
        """Returns when a process was last scraped, in seconds since the epoch; 0 if it never was."""
        instance = f'{{instance="{self._fronts[name].address}"}}'
        return self._one(f"max(max_over_time(timestamp({SENT}{instance})[1h:1s]))")

    def settle(self, processes: Sequence[str]) -> None:
        """Waits until Prometheus knows all that was published until now."""
        now = time.time()
        until(lambda: all(self.seen(each) > now + 2 for each in processes), "two more scrapes", 60, pause=0.2)

    def resets(self) -> dict[str, float]:
        """Returns counter, or part of a histogram → how often its series have gone back."""
        known = self._prometheus.query(f"group by (__name__) (last_over_time({COUNTERS}[1h]))")
        found = [each.labels["__name__"] for each in known]
        return {name: self._one(f'sum(resets({name}{{job="outbox"}}[1h]))') for name in found}

    def _one(self, expression: str) -> float:
        found = self._prometheus.query(expression)
        return found[0].value if found else 0.0


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("inline", marks=pytest.mark.slow),
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_sums_agree_with_the_audit_through_a_killed_leader_and_a_handover(
    shop: Shop, fleet: Fleet, measure: Measure, engine: str
) -> None:
    with ExitStack() as stack:
        fronts = {name: stack.enter_context(closing(Front())) for name in "abc"}
        targets = [front.address for front in fronts.values()]
        prometheus = stack.enter_context(PrometheusServer({"outbox": targets}))
        watch = Watch(fleet, fronts, prometheus)
        first = watch.start("a", engine)
        first.wait_for("leader acquired", START[engine])
        second = watch.start("b")
        until(lambda: fleet.members() == 2, "the standby is in the group", 60)
        shop.stash(AT_REST, keys=50)
        shop.wait_until_harvested(60)
        watch.settle("a")
        assert watch.published() == len(shop.deliveries())
        with shop.selling():
            began = time.time()
            shop.wait_for_sales(100)
            killed_at = first.kill()
            second.wait_for("leader acquired", SESSION + 60, killed_at)
            shop.wait_for_sales(300)
        shop.wait_until_harvested(60)
        watch.settle("b")

        # What the killed process has sent since Prometheus last asked is on the topic, and in no sum.
        sent = shop.deliveries()
        uncounted = len(sent) - watch.published()
        at_risk = sum(began - CLOCK_STEP <= at <= killed_at + CLOCK_STEP for at in sent)
        assert 0 <= uncounted <= at_risk
        assert watch.seen("a") < killed_at + CLOCK_STEP

        third = watch.start("c")
        until(lambda: fleet.members() == 2, "another standby is in the group", 60)
        left_at = second.send(signal.SIGTERM)
        third.wait_for("leader acquired", SESSION + 60, left_at)
        assert second.wait(120) == 0
        shop.stash(300, keys=50, start=AT_REST + 1)
        shop.wait_until_harvested(60)
        watch.settle("c")

        # A handover at rest adds nothing to that: the sums are exact.
        result = shop.audit()
        assert result.good, result.summary()
        assert watch.published() == result.delivered + result.repeated - uncounted
        assert len(shop.messages()) == result.delivered + result.repeated
        resets = watch.resets()
        assert {exported(each) for each in METRICS if each.kind is Kind.COUNTER} <= resets.keys()
        assert set(resets.values()) == {0}
    measure("published", result.delivered + result.repeated)
    measure("published by the killed process, and in no sum", uncounted)
