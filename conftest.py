"""What all tests stand on: how they are spread over processes.

Those of one file stay together, those with Spark run one by one, and long files are begun first: at the end
a process would wait for another one that has just begun one.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

import hypothesis
import pytest
from outbox_core.cli.logs import JsonLines, Redacting
from outbox_core.text.repetitions import RepetitionFilter
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

SPARK_FILES = frozenset(
    (
        "test_demo.py",
        "test_goharvest_file.py",
        "test_lakehouse.py",
        "test_odd_rows_spark.py",
        "test_outages.py",
        "test_processes.py",
        "test_prometheus_sums.py",
        "test_spark_cluster.py",
        "test_spark_conformance.py",
        "test_spark_connect.py",
        "test_spark_examples.py",
        "test_spark_kafka_sink.py",
        "test_spark_kept.py",
        "test_spark_kubernetes.py",
        "test_spark_lanes.py",
        "test_spark_outboxes.py",
        "test_spark_pipeline.py",
        "test_spark_ports.py",
        "test_spark_secrets.py",
        "test_spark_sinks.py",
        "test_spark_stash.py",
        "test_spark_source.py",
    )
)
"""Files with tests that start Spark's JVMs: a machine has room for few of these."""
LONG_FILES = (
    "tests/test_clusters.py",
    "tests/test_faults.py",
    "tests/test_exactly_once.py",
    "plugins/postgres/tests/test_postgres_conformance.py",
    "plugins/mysql/tests/test_mysql_conformance.py",
    "plugins/neli_kafka/tests/test_neli_broker.py",
    "tests/test_many_outboxes.py",
    "core/tests/test_elector_conformance.py",
    "tests/test_clusters_mariadb.py",
    "tests/test_cluster_simulation.py",
    "tests/test_kafka_rotation.py",
    "tests/page/test_page_for_everybody.py",
    "plugins/kafka/tests/test_kafka_transaction_faults.py",
    "plugins/zookeeper/tests/test_zookeeper_conformance.py",
    "tests/test_takeover.py",
    "demo/tests/test_demo_clusters.py",
    "tests/test_model.py",
    "tests/test_simulation.py",
    "tests/test_alarms.py",
    "plugins/neli_kafka/tests/test_neli_conformance.py",
    "plugins/etcd/tests/test_etcd_elector.py",
    "tests/page/test_page_guarded.py",
    "tests/page/test_page_deeds.py",
    "tests/page/test_page_outages.py",
    "tests/test_parking.py",
)
"""Files that take half a minute or more, the longest first."""
SPARK_SECONDS = 480
"""The longest that a test with Spark may take: on a slow machine a JVM alone takes half a minute to start."""

MUCH_MEMORY = 8 << 30
"""Bytes that are free where files are kept in memory, if tests may use it."""

# Tests assert behaviour, not time: other tests run beside each example.
hypothesis.settings.register_profile(
    "outbox", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("outbox")


class OneSparkAtATime(LoadFileScheduling):
    """Gives the tests of one file to one process, and all files with Spark to the same process."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if PurePath(file).name in SPARK_FILES else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Schedules as above."""
    return OneSparkAtATime(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Prepares what the programs that tests start inherit: signals, and where temporary files are."""
    for number in (signal.SIGHUP, signal.SIGINT):
        # Under nohup, and in a shell's background, they are ignored. A child inherits that, but no handler.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    _begin_elsewhere(config)
    _put_files_into_memory(config)


def _begin_elsewhere(config: pytest.Config) -> None:
    """Has each process of a run collect another folder first, which it then compiles for the others, too."""
    worker = getattr(config, "workerinput", None)
    if worker and not any("::" in each for each in config.args):  # the tests of a file keep their order
        first = int(worker["workerid"].removeprefix("gw")) * len(config.args) // worker["workercount"]
        config.args[:] = config.args[first:] + config.args[:first]


def _put_files_into_memory(config: pytest.Config) -> None:
    """Puts temporary files, and so the databases of servers, into memory if there is much: disks are slow."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder made below is a private one
    if "TMPDIR" in os.environ or not memory.is_dir() or shutil.disk_usage(memory).free < MUCH_MEMORY:
        return
    for former in memory.glob("outbox-tests-*"):  # of runs that were killed
        if not Path("/proc", former.name.split("-")[2]).exists():
            shutil.rmtree(former, ignore_errors=True)
    scratch = tempfile.mkdtemp(dir=memory, prefix=f"outbox-tests-{os.getpid()}-")
    Path(scratch).chmod(0o1777)  # servers run as other users
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    config.add_cleanup(lambda: shutil.rmtree(scratch, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts the tests: those with Spark come first, then those of long files."""
    for item in items:
        if item.get_closest_marker("spark"):
            if item.path.name not in SPARK_FILES:
                raise pytest.UsageError(f"{item.path} starts Spark and is missing in {__file__}")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(SPARK_SECONDS))
    for file in LONG_FILES:
        if not (config.rootpath / file).exists():
            raise pytest.UsageError(f"there is no {file}, which {__file__} names")
    items.sort(key=lambda item: (_turn(item), item.path))  # the same in each process


def _turn(item: pytest.Item) -> int:
    """Returns when a test has its turn: the lowest number is the first; units come after whole systems."""
    if item.get_closest_marker("spark"):
        return 0
    file = item.nodeid.partition("::")[0]
    if file in LONG_FILES:
        return 1 + LONG_FILES.index(file)
    return 1 + len(LONG_FILES) + (not file.startswith("tests/"))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[logging.LogRecord]]:
    """What was logged under a logger: Kafka clients of earlier tests still say that their broker is gone."""
    return lambda logger: [record for record in caplog.records if f"{record.name}.".startswith(f"{logger}.")]


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Takes away the log handler of a command that ran in this process: its stream ends with the test.

    With its timer, which would begin anew in later tests, of which some count threads.
    """
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and isinstance(
            getattr(thread.function, "__self__", None), RepetitionFilter
        ):
            thread.cancel()
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each.formatter, Redacting | JsonLines)]:
        root.removeHandler(handler)
