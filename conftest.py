"""What all tests stand on; above all how they are spread over processes.

Those of one file stay together, those with Spark run one by one, and long files are begun first: at the end
a process would wait for another one that has just begun one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import PurePath

import hypothesis
import pytest
from outbox_core.cli.json_lines import JsonLines
from outbox_core.cli.logs import Redacting
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

SPARK_FILES = frozenset(
    (
        "test_demo.py",
        "test_goharvest_file.py",
        "test_outages.py",
        "test_prometheus_sums.py",
        "test_spark_lanes.py",
        "test_spark_secrets.py",
    )
)
"""Files with tests that start Spark's JVMs: a machine has room for few of these."""
LONG_FILES = (
    "tests/test_clusters.py",
    "tests/test_faults.py",
    "tests/test_exactly_once.py",
    "tests/test_many_outboxes.py",
    "plugins/postgres/tests/test_postgres_conformance.py",
    "plugins/mysql/tests/test_mysql_conformance.py",
    "tests/page/test_page_for_everybody.py",
    "core/tests/test_elector_conformance.py",
    "tests/test_clusters_mariadb.py",
    "tests/test_cluster_simulation.py",
    "tests/test_kafka_rotation.py",
    "tests/page/test_page_guarded.py",
    "demo/tests/test_demo_clusters.py",
    "plugins/zookeeper/tests/test_zookeeper_conformance.py",
    "plugins/neli_kafka/tests/test_neli_conformance.py",
    "tests/test_model.py",
    "tests/test_simulation.py",
    "tests/test_alarms.py",
)
"""Files that take a minute or so, the longest first."""
SPARK_SECONDS = 480
"""The longest that a test with Spark may take: on a slow machine a JVM alone takes half a minute to start."""

os.environ["OUTBOX_CLASS_DATA"] = "off"  # the one JVM of a test is enough; some tests switch it on

# Tests assert behaviour, not time: other tests run beside each example.
hypothesis.settings.register_profile("outbox", deadline=None)
hypothesis.settings.load_profile("outbox")


class OneSparkAtATime(LoadFileScheduling):
    """Gives the tests of one file to one process, and all files with Spark to the same process."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if PurePath(file).name in SPARK_FILES else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Schedules as above."""
    return OneSparkAtATime(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests with Spark first, as they take longest, and then those of long files."""
    for item in items:
        if item.get_closest_marker("spark"):
            if item.path.name not in SPARK_FILES:
                raise pytest.UsageError(f"{item.path} starts Spark and is missing in {__file__}")
            item.add_marker(pytest.mark.timeout(SPARK_SECONDS))
    for file in LONG_FILES:
        if not (config.rootpath / file).exists():
            raise pytest.UsageError(f"there is no {file}, which {__file__} names")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Returns when a test has its turn: the lowest number is the first."""
    if item.get_closest_marker("spark"):
        return 0
    file = item.nodeid.partition("::")[0]
    return 1 + (LONG_FILES.index(file) if file in LONG_FILES else len(LONG_FILES))


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Takes away the log handler of a command that ran in this process: its stream ends with the test."""
    yield
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each.formatter, Redacting | JsonLines)]:
        root.removeHandler(handler)
