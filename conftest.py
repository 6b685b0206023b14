"""What all tests stand on: how they are spread over processes, and which of the slow ones run.

Those of one file stay together, those with Spark run one by one, and long files are begun first: at the end
a process would wait for another one that has just begun one.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import cache
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the choice among slow tests."""
    parser.addoption(
        "--changed-since",
        metavar="COMMIT",
        help="of the slow tests, run those alone that guard a file which has changed since this commit",
    )


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
    """Leaves out slow tests that are not wanted; those with Spark come first, then those of long files."""
    for item in items:
        if item.get_closest_marker("spark"):
            if item.path.name not in SPARK_FILES:
                raise pytest.UsageError(f"{item.path} starts Spark and is missing in {__file__}")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(SPARK_SECONDS))
    for file in LONG_FILES:
        if not (config.rootpath / file).exists():
            raise pytest.UsageError(f"there is no {file}, which {__file__} names")
    _leave_out(config, items)
    items.sort(key=lambda item: (_turn(item), item.path))  # the same in each process


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Lets a run succeed whose slow tests guard nothing that has changed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("--changed-since"):
        session.exitstatus = pytest.ExitCode.OK


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the slow tests that guard nothing which has changed, if the command line says since when."""
    guards = tomllib.loads((config.rootpath / "pyproject.toml").read_text())["tool"]["outbox"]["guards"]
    commit = config.getoption("--changed-since")
    changed = _changed(config.rootpath, commit) if commit else []
    left_out = []
    for item in items:
        if marker := item.get_closest_marker("slow"):
            if not marker.args or not set(marker.args) <= guards.keys():
                raise pytest.UsageError(f"{item.nodeid}: pyproject.toml lacks a group of {marker.args}")
            globs = [glob for group in marker.args for glob in guards[group]]
            if commit and not any(
                _uses(item.path, config.rootpath / path) or any(fnmatch(str(path), glob) for glob in globs)
                for path in changed
            ):
                left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    kept = set(items) - set(left_out)
    items[:] = [item for item in items if item in kept]


@cache
def _uses(tests: Path, path: Path) -> bool:
    """Returns whether tests use a file: their own, a helper in their folder, or tests that they import."""
    if path == tests or not path.is_relative_to(tests.parent):
        return path == tests
    return not path.name.startswith("test_") or f"from .{path.stem} import" in tests.read_text("utf-8")


def _changed(root: Path, commit: str) -> list[PurePath]:
    """Returns the files that differ from those of a commit.

    Raises:
        UsageError: The repository has no such commit.
    """
    command = ["git", "diff", "--name-only", commit]
    done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)  # noqa: S603 - for developers, who have git
    if done.returncode != 0:
        raise pytest.UsageError(f"what has changed since {commit}? {done.stderr}")
    return [PurePath(line) for line in done.stdout.splitlines()]


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
