"""A real Spark cluster: a standalone master and its workers as child processes, from PySpark's own jars."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.error import URLError
from urllib.request import urlopen

from outbox_servers.services.cache import Progress, logged
from outbox_servers.services.java import Java, find_java
from outbox_servers.services.maven import pyspark_jars
from outbox_servers.services.process import ServerProcess, free_port
from outbox_servers.services.service import Service

if TYPE_CHECKING:
    from types import TracebackType

# Without retries a port in use is an error, so the master always has the address of master_url.
_ONE_PORT = "-Dspark.port.maxRetries=0"

# Master and workers do little; they should start fast and leave memory and processors to the executors.
_QUICK_JVM = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "SPARK_LAUNCHER_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class SparkStandalone:
    """A Spark standalone cluster on 127.0.0.1; a context manager that starts and closes it.

    Anybody who can reach its ports can run code in it: for tests on a machine that you trust.

    Args:
        workers: How many workers to start.
        cores: How many cores each worker offers.
        memory: How much memory each worker offers to executors, in Spark's notation.
        worker_timeout: Seconds without a heartbeat after which the master removes a worker; it removes one
            whose connection breaks at once.
        java: The Java to run it with; found by ``find_java`` if not given.
        progress: Receives lines of text while the cluster starts.

    Attributes:
        master: The master.
        workers: The workers, in the order in which they were started.
    """

    def __init__(
        self,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        worker_timeout: int = 5,
        java: Java | None = None,
        progress: Progress = logged,
    ) -> None:
        self._java = java or find_java()
        self._progress = progress
        self.master = SparkMaster(self._java, worker_timeout=worker_timeout)
        self.workers = [SparkWorker(self.master, cores=cores, memory=memory) for _ in range(workers)]

    @property
    def master_url(self) -> str:
        """The address for ``SparkSession.builder.master``.

        Raises:
            ServiceError: The cluster was never started.
        """
        return self.master.url

    def environment(self) -> dict[str, str]:
        """Returns the variables that a driver must have in its environment before it starts its JVM."""
        return _environment(self._java)

    def start(self) -> Self:
        """Starts the processes that do not run yet, and waits until the master knows each of these workers.

        Raises:
            ServiceError: A process ended, or was not ready in time.
        """
        self._progress("Starting a Spark master")
        self.master.start()
        self._progress(f"Starting {len(self.workers)} Spark workers for {self.master_url}")
        with ThreadPoolExecutor(max(1, len(self.workers))) as pool:
            list(pool.map(SparkWorker.start, self.workers))
        return self

    def stop(self) -> None:
        """Stops workers and master in order; idempotent."""
        for worker in self.workers:
            worker.stop()
        self.master.stop()

    def close(self) -> None:
        """Kills the cluster and deletes its folders; idempotent."""
        for worker in self.workers:
            worker.close()
        self.master.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _SparkDaemon(Service):
    """A Spark process that PySpark's ``spark-class`` starts; see ``Service`` for its methods."""

    port_taken: ClassVar[str] = "BindException"

    def __init__(self, java: Java) -> None:
        super().__init__()
        self.java = java
        self._ui_port: int | None = None

    def _choose_ports(self) -> None:
        self._ui_port = free_port()

    def _run(self, main: str, arguments: list[str], options: dict[str, str]) -> ServerProcess:
        spark_class = pyspark_jars().parent / "bin" / "spark-class"
        command = ["bash", str(spark_class), main, "--host", "127.0.0.1", "--webui-port", str(self._ui_port)]
        return ServerProcess(
            self.title,
            [*command, *arguments],
            log=self.log,
            environment={**os.environ, **_environment(self.java), **_QUICK_JVM, **options},
            orphan_folder=self._orphan_folder,
        )

    def _shut_down(self) -> None:
        self.kill()


class SparkMaster(_SparkDaemon):
    """The master of a cluster: forgets its applications when it is killed.

    Attributes:
        options: The Java options that it and its workers share.
    """

    title: ClassVar[str] = "Spark-Master"

    def __init__(self, java: Java, *, worker_timeout: int) -> None:
        super().__init__(java)
        # Workers need it too: they send four heartbeats in that time.
        self.options = f"{_ONE_PORT} -Dspark.worker.timeout={worker_timeout}"

    @property
    def url(self) -> str:
        """The address for workers and drivers."""
        return f"spark://127.0.0.1:{self._port}"

    def live_workers(self) -> dict[str, str]:
        """Returns id → web address of each worker that the master knows as alive; none if it is down."""
        workers = self._state().get("workers", [])
        return {each["id"]: each["webuiaddress"] for each in workers if each["state"] == "ALIVE"}

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self._port = free_port()

    def _launch(self) -> ServerProcess:
        return self._run(
            "org.apache.spark.deploy.master.Master",
            ["--port", str(self._port)],
            # Its other interface listens on a port of its own that two masters cannot share.
            {"SPARK_MASTER_OPTS": f"{self.options} -Dspark.master.rest.enabled=false"},
        )

    def _ready(self) -> bool:
        return bool(self._state().get("status") == "ALIVE")

    def _state(self) -> dict[str, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{self._ui_port}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
        except (URLError, OSError, json.JSONDecodeError):  # at first it answers every request with a page
            return {}
        return state


class SparkWorker(_SparkDaemon):
    """A worker; ``kill`` also kills its executors and their Python processes, like the loss of a machine."""

    title: ClassVar[str] = "Spark-Worker"

    def __init__(self, master: SparkMaster, *, cores: int, memory: str) -> None:
        super().__init__(master.java)
        self._master = master
        self._cores = cores
        self._memory = memory
        self._former: set[str] = set()

    def _launch(self) -> ServerProcess:
        self._former = set(self._master.live_workers())  # one that was killed may be among them for a while
        arguments = ["--cores", str(self._cores), "--memory", self._memory]
        arguments += ["--work-dir", str(self.folder / "work")]
        return self._run(
            "org.apache.spark.deploy.worker.Worker",
            [*arguments, self._master.url],
            {"SPARK_WORKER_OPTS": self._master.options},
        )

    def _ready(self) -> bool:
        mine = f"http://127.0.0.1:{self._ui_port}"
        known = self._master.live_workers()
        return any(address == mine for name, address in known.items() if name not in self._former)


def _environment(java: Java) -> dict[str, str]:
    return {
        **java.environment(),
        "SPARK_HOME": str(pyspark_jars().parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # PySpark's default is python3 of PATH, which may be another version without our packages.
        "PYSPARK_PYTHON": sys.executable,
    }
