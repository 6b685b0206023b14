"""The source on a standalone master with three workers, as ``spark-submit`` starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import sleep, time

import psutil
import pytest
from outbox_api import ConfigError, Dialect, OutboxError, Record, Seam, Stasher, find
from outbox_servers.services import SparkStandalone
from outbox_spark.application import Application
from outbox_spark.options import SparkOptions
from outbox_spark.workers import SparkWorkers
from psycopg.conninfo import conninfo_to_dict, make_conninfo

pytestmark = pytest.mark.spark

KEYS = 50
ROWS = 6_000
BATCH = 2_000
WAIT_SECONDS = 420
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SHOWN = "GREYHERON"
"""A setting's value that everybody may see."""

PROGRAM = """
import json, os, sys, time
from pathlib import Path
from urllib.request import urlopen
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

folder = Path(sys.argv[1])

def seen(key, folder=folder):
    (folder / "seen" / str(os.getpid())).touch()
    time.sleep(0.002)
    return os.getpid()

spark = SparkSession.builder.getOrCreate()
source = spark.readStream.format("outbox").options(**json.loads(os.environ["OPTIONS"])).load()
writer = source.withColumn("process", udf(seen, "bigint")("key")).writeStream.format("parquet")
writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
slow, said = "failed to connect back", ""
for _ in range(10):  # Spark gives a new Python process ten seconds, in which a busy machine may not start one
    said = ""
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        said = str(error)
    if slow not in said:
        break
rows = [] if said else spark.read.parquet(str(folder / "out")).collect()
place = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
pages = [urlopen(f"{place}/{page}").read().decode() for page in ("environment", "sql?details=true", "stages")]
rows = [(row.id, row.position, row.key, row.value.decode(), row.process) for row in rows]
(folder / "found").write_text(json.dumps({"said": said, "rows": rows, "pages": pages}))
"""
FRESH_SECONDS = 0.02
"""A worker has touched its file no longer ago, if it has rows."""


@dataclass(frozen=True)
class Shop:
    """An outbox, and its password."""

    data_source: str
    password: str

    @property
    def dialect(self) -> Dialect:
        driver = find(Seam.DIALECT, "postgres")
        made: Dialect = driver.create(driver.options(data_source=self.data_source, password=self.password))
        return made

    def stash(self, numbers: Sequence[int]) -> None:
        self.dialect.create()
        with closing(self.dialect.stash_connection()) as connection:
            records = [Record("orders", f"k{number % KEYS}", str(number)) for number in numbers]
            Stasher().stash_many(connection, records)
            connection.commit()

    def waiting(self) -> int:
        with closing(self.dialect.watch()) as view:
            return view.backlog().records


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkStandalone]:
    """Workers that know nothing of where this process has its packages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        with SparkStandalone(workers=3) as cluster:
            yield cluster


@pytest.fixture
def shop(postgres_dsn: str) -> Shop:
    told = conninfo_to_dict(postgres_dsn)
    password = str(told.pop("password"))
    return Shop(make_conninfo("", **told), password)


@contextmanager
def submitted(
    cluster: SparkStandalone, shop: Shop, folder: Path, settings: Mapping[str, str], python: str
) -> Iterator[psutil.Popen]:
    """Starts the program as users do, in ``folder``."""
    for name in ("seen", "events"):
        (folder / name).mkdir()
    (folder / "program.py").write_text(PROGRAM)
    given = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.shop.shown": SHOWN,
        **settings,
    }
    options = {"dataSource": shop.data_source, "password": "${SHOP_PASSWORD}"}
    options |= {"maxRecordsPerTrigger": str(BATCH), "partitions": "3"}
    own = {"PYSPARK_PYTHON": python, "SHOP_PASSWORD": shop.password, "OPTIONS": json.dumps(options)}
    environment = {**os.environ, **cluster.environment(), **own}
    environment.pop("PYSPARK_DRIVER_PYTHON", None)
    # Without the zips of PySpark's modules: Python would compile these at each of its starts.
    for part in ("bin", "jars"):
        (folder / "spark").mkdir(exist_ok=True)
        (folder / "spark" / part).symlink_to(Path(environment["SPARK_HOME"], part))
    environment["SPARK_HOME"] = str(folder / "spark")
    command = [str(Path(environment["SPARK_HOME"], "bin", "spark-submit")), "--master", cluster.master_url]
    for name, value in given.items():
        command += ["--conf", f"{name}={value}"]
    command += ["program.py", str(folder)]
    with (folder / "driver.log").open("wb") as log:
        driver = psutil.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield driver
    finally:
        with suppress(psutil.NoSuchProcess):
            for process in [*driver.children(recursive=True), driver]:
                process.kill()
        driver.wait()


def command_lines() -> str:
    """Returns what every user of this machine sees of its processes."""
    shown = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            shown += process.cmdline()
    return "\n".join(shown)


def executor_of(folder: Path) -> psutil.Process | None:
    """Returns an executor whose worker has rows just now, of the second batch or of a later one."""
    if not (folder / "checkpoint" / "commits" / "0").exists():
        return None
    for file in (folder / "seen").iterdir():
        if file.stat().st_mtime < time() - FRESH_SECONDS:
            continue
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(int(file.name)).parents():
                if process.name() == "java" and any("ExecutorBackend" in word for word in process.cmdline()):
                    return process
    return None


def found_by(driver: psutil.Popen, folder: Path) -> dict[str, object]:
    """Waits for the program, and returns what it has found."""
    assert driver.wait(WAIT_SECONDS) == 0, (folder / "driver.log").read_text()
    found: dict[str, object] = json.loads((folder / "found").read_text())
    return found


@pytest.mark.slow
def test_a_killed_executor_costs_and_repeats_nothing_and_nobody_sees_the_password(
    cluster: SparkStandalone, shop: Shop, tmp_path: Path
) -> None:
    shop.stash(range(ROWS))
    settings = {"spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with submitted(cluster, shop, tmp_path, settings, sys.executable) as driver:
        while (executor := executor_of(tmp_path)) is None:
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()
            sleep(0.01)  # until the test takes too long
        executor.kill()
        seen = command_lines()
        found = found_by(driver, tmp_path)

    rows = found["rows"]
    assert isinstance(rows, list)
    assert sorted(int(value) for *_, value, _ in rows) == list(range(ROWS)), found["said"]
    latest: dict[str, int] = {}
    for _, _, key, value, _ in sorted(rows, key=lambda row: row[1]):
        assert latest.get(key, -1) < int(value)
        latest[key] = int(value)
    assert len({process for *_, process in rows}) > 2, "several workers have read"
    assert shop.waiting() == 0

    events = "".join(file.read_text() for file in (tmp_path / "events").rglob("events_*"))
    assert "ExecutorLostFailure" in events, "it was killed with a task"
    log = (tmp_path / "driver.log").read_text()
    assert SHOWN in seen
    assert SHOWN in events
    assert SHOWN in str(found["pages"])
    logs = [file.read_text() for worker in cluster.workers for file in worker.folder.rglob("stderr")]
    for text in (seen, events, str(found["pages"]), log, *logs):
        assert shop.password not in text


def bare_environment(folder: Path) -> Path:
    """Returns an archive of an environment of executors that has what Spark itself needs, PyArrow."""
    venv.create(folder / "bare", symlinks=True)
    [packages] = (folder / "bare" / "lib").glob("python*/site-packages")
    place = find_spec("pyarrow")
    assert place is not None
    assert place.origin is not None
    (packages / "pyarrow").symlink_to(Path(place.origin).parent)
    with tarfile.open(folder / "bare.tar.gz", "w:gz") as archive:
        archive.add(folder / "bare", "")
    return folder / "bare.tar.gz"


@pytest.mark.slow
def test_executors_need_nothing_of_outbox(cluster: SparkStandalone, shop: Shop, tmp_path: Path) -> None:
    shop.stash(range(ROWS))
    archive = bare_environment(tmp_path)
    (tmp_path / "environment").symlink_to(sys.prefix)  # the driver's, at the path that executors have
    settings = {"spark.archives": f"{archive}#environment"}
    with submitted(cluster, shop, tmp_path, settings, "./environment/bin/python") as driver:
        found = found_by(driver, tmp_path)
    rows = found["rows"]
    assert isinstance(rows, list)
    assert sorted(int(value) for *_, value, _ in rows) == list(range(ROWS)), found["said"]
    assert shop.waiting() == 0


@pytest.mark.slow
def test_executors_without_outbox_run_no_lanes_and_are_told_why(
    cluster: SparkStandalone, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    settings = {
        "spark.cores.max": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.pyspark.python": str(tmp_path / "bare" / "bin" / "python"),
    }
    application = Application("bare", cluster.master_url, settings)
    with closing(SparkWorkers(application, "shop", 1, application.stop)) as workers:
        with pytest.raises(
            OutboxError, match="the Python of its executors does not start outbox_spark"
        ) as told:
            workers.warm(os.getpid)  # type: ignore[arg-type]  # any task
        assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize("value", ["true", " True"])
def test_copies_of_lanes_are_refused(value: str) -> None:
    SparkOptions(settings={"spark.speculation": "false"})
    with pytest.raises(ConfigError, match=r"spark\.speculation would run copies of lanes"):
        SparkOptions(settings={"spark.speculation": value})
