"""From an outbox through a shuffle into Kafka, on a cluster of Spark of which everything is killed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from outbox_servers.late_proxy import LateProxy, Match, kafka_length
from outbox_servers.services import KafkaBroker, SparkStandalone

from .sink_hits import Commits, Striker, Target
from .sink_kills import TASKS, WORKERS, Trial
from .sink_late import WHAT, refusing, sent
from .sink_trial import Count, created

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

NOTHING = Count(lost=0, twice=0, out_of_order=0)


@pytest.fixture
def cluster() -> Iterator[SparkStandalone]:
    with SparkStandalone(workers=WORKERS, cores=TASKS // WORKERS) as cluster:
        yield cluster


def test_nothing_is_lost_or_repeated_whatever_is_killed(
    cluster: SparkStandalone, postgres_dsn: str, tmp_path: Path
) -> None:
    with KafkaBroker() as broker:
        trial = Trial(broker.bootstrap, tmp_path, 30_000, kills=5, restarts=1)
        trial.outbox, trial.cluster, trial.broker = created(postgres_dsn), cluster, broker
        assert trial.run() == NOTHING


def test_a_late_request_of_a_killed_executor_changes_nothing(
    cluster: SparkStandalone, tmp_path: Path
) -> None:
    with LateProxy(lambda: broker.proxied_port, kafka_length) as proxy:
        broker = KafkaBroker(proxy_port=proxy.port)
        with broker, ThreadPoolExecutor() as pool:
            trial = Trial(f"127.0.0.1:{proxy.port}", tmp_path, 30_000, kills=0, cluster=cluster)
            striker = Striker(broker.bootstrap, tmp_path / "checkpoint" / "commits", cluster)
            late = pool.submit(lambda: [lose(proxy, striker, sent(what, "kills-")) for what in WHAT])
            assert trial.run() == NOTHING
            assert late.result() == [True] * len(WHAT)


def lose(proxy: LateProxy, striker: Striker, wanted: Match) -> bool:
    """Kills all executors while a request is under way, which arrives once another attempt has opened."""
    proxy.keep(refusing(proxy, wanted))
    assert proxy.kept.wait(300)
    with closing(Commits(striker.bootstrap)) as watched:
        killed = striker.kill_processes(Target.EXECUTORS)
        proxy.refuses = False
        assert watched.wait_for_one(300, "opened")
        assert proxy.deliver(), "the broker has handled it"
    return killed
