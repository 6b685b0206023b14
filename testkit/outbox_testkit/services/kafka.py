"""A real Kafka broker as a child process."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from outbox_testkit.services.cache import Progress, cached_folder, silent
from outbox_testkit.services.external import Kafka
from outbox_testkit.services.java import Java, find_java
from outbox_testkit.services.maven import fetch_jars
from outbox_testkit.services.process import ServerProcess, Service, ServiceError, free_port

KAFKA_VERSION = "4.1.0"

# Kafka logs through SLF4J and its artifact names no logger; this one writes to standard error.
_ARTIFACTS = (("org.apache.kafka", "kafka_2.13", KAFKA_VERSION), ("org.slf4j", "slf4j-simple", "1.7.36"))

QUICK_JVM = ("-Xmx512m", "-Xms256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Starts in the least time and memory; a benchmark passes options of its own."""

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    # One broker holds the only copy of everything.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Groups form at once, and a test may lose a member in a second.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # After a crash the controller accepts the new process once the old one's session is over.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Little memory, little disk.
    "log.segment.bytes": str(64 << 20),
    "log.index.size.max.bytes": str(1 << 20),
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "num.network.threads": "2",
    "num.io.threads": "4",
}


class KafkaBroker(Service, Kafka):
    """A single-node Kafka (KRaft) that listens on 127.0.0.1, for tests and demonstrations.

    Its jars are fetched from Maven Central once and kept in the cache folder. Stopped, killed and started again, it
    keeps its port and its data.

    Args:
        folder: Where data and log live; a new temporary folder, deleted at the end, if not given.
        properties: Server properties that add to or replace the ones set here.
        auto_create_topics: Whether a topic is created when a client first names it.
        jvm_options: Memory and speed of its Java.
        java: The Java to run it with; found by ``find_java`` if not given.
        progress: Receives lines of text while jars are fetched and the broker starts.
    """

    title: ClassVar[str] = "Kafka"
    port_taken: ClassVar[str] = "BindException"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        properties: Mapping[str, str] | None = None,
        auto_create_topics: bool = True,
        jvm_options: Sequence[str] = QUICK_JVM,
        java: Java | None = None,
        progress: Progress = silent,
    ) -> None:
        super().__init__(folder)
        self._properties = {
            "auto.create.topics.enable": str(auto_create_topics).lower(),
            **(properties or {}),
        }
        self._jvm_options = tuple(jvm_options)
        self._java = java
        self._progress = progress
        self._ports: tuple[int, int] | None = None
        self._dump: Path | None = None

    @property
    def bootstrap(self) -> str:
        """The address for ``bootstrap.servers``.

        Raises:
            ServiceError: The broker was never started.
        """
        if self._ports is None:
            raise ServiceError("Kafka has no address before its first start; start() it first.")
        return f"127.0.0.1:{self._ports[0]}"

    def stop(self) -> None:
        """Stops the broker in order; the data stays. Idempotent."""
        if self._process is None:
            return
        self._process.stop()
        self._keep_class_archive()

    def restart(self) -> None:
        """Stops the broker in order and starts it again on the same port with the same data."""
        self.stop()
        self.start()

    def _choose_ports(self) -> None:
        self._ports = (free_port(), free_port())

    def _launch(self) -> ServerProcess:
        java = self._java = self._java or find_java()
        home = kafka_home(java, self._progress)
        self._progress(f"Starting Kafka {KAFKA_VERSION} on {self.bootstrap}")
        settings = self._write_settings(home)
        command = [str(java.executable), *self._jvm_options, *self._class_archive(java, home)]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path(home)]
        return ServerProcess(
            "Kafka",
            [*command, "kafka.Kafka", str(settings)],
            log=self.log,
            environment={name: value for name, value in os.environ.items() if name != "CLASSPATH"},
            orphan_folder=self._orphan_folder,
        )

    def _write_settings(self, home: Path) -> Path:
        assert self._ports
        client, controller = (f"127.0.0.1:{port}" for port in self._ports)
        data = self.folder / "data"
        settings = {
            **_SETTINGS,
            "log.dirs": str(data),
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{client}",
            **self._properties,
        }
        if not data.exists():
            # What Kafka's StorageTool does, without the second that its own JVM takes.
            data.mkdir()
            shutil.copy(home / "bootstrap.checkpoint", data)
            identity = {
                "version": "1",
                "node.id": "1",
                "cluster.id": _kafka_id(),
                "directory.id": _kafka_id(),
            }
            _write_properties(data / "meta.properties", identity)
        return _write_properties(self.folder / "server.properties", settings)

    def _ready(self) -> bool:
        assert self._ports
        # A refused connection is cheaper than a client's timeout and keeps its complaints out of the output.
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self._ports[0])) != 0:
                return False
        try:
            metadata = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(
                timeout=5
            )
        except KafkaException:
            return False
        partitions = [part for topic in metadata.topics.values() for part in topic.partitions.values()]
        return bool(metadata.brokers) and all(part.leader >= 0 for part in partitions)

    def _shut_down(self) -> None:
        # A temporary broker's data is not needed again, unless this run is to leave its classes for the next.
        if self._temporary and self._dump is None:
            self.kill()
        else:
            self.stop()

    def _class_archive(self, java: Java, home: Path) -> list[str]:
        """Returns the option that maps the classes of an earlier run, or that dumps this run's at its end."""
        if not java.has_class_archive():
            return []
        archive = (
            home / f"classes-{hashlib.sha256(str(java.home).encode()).hexdigest()[:12]}-{java.version}.jsa"
        )
        if archive.is_file():
            return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"]
        self._archive = archive
        self._dump = self.folder / "classes.jsa"
        return [f"-XX:ArchiveClassesAtExit={self._dump}", "-Xlog:disable", "-Xlog:all=error:stderr"]

    def _keep_class_archive(self) -> None:
        if self._dump and self._dump.is_file():
            with tempfile.NamedTemporaryFile(dir=self._archive.parent, delete=False) as copy:
                copy.write(self._dump.read_bytes())
            Path(copy.name).replace(self._archive)
            self._dump.unlink()
        self._dump = None


def kafka_home(java: Java, progress: Progress = silent) -> Path:
    """Returns the cached folder with Kafka's ``jars`` and a ``bootstrap.checkpoint``; makes it the first time.

    Raises:
        ServiceError: The jars could not be fetched, or do not run.
    """

    def build(folder: Path) -> None:
        progress(f"Fetching Apache Kafka {KAFKA_VERSION} from Maven Central (43 MB, once)")
        fetch_jars(_ARTIFACTS, folder / "jars", java, progress)
        _format(folder, java)

    return cached_folder(f"kafka-{KAFKA_VERSION}", build, progress=progress)


def class_path(home: Path) -> str:
    """Returns the jars of a ``kafka_home`` in a stable order, which a class archive depends on."""
    return os.pathsep.join(str(jar) for jar in sorted((home / "jars").glob("*.jar")))


def _format(folder: Path, java: Java) -> None:
    """Has Kafka format a storage folder and keeps the part that is the same for every broker."""
    with tempfile.TemporaryDirectory(prefix="outbox-format-") as work:
        listeners = {"listeners": "CONTROLLER://127.0.0.1:1", "controller.quorum.voters": "1@127.0.0.1:1"}
        properties = {**_SETTINGS, "process.roles": "controller", **listeners, "log.dirs": f"{work}/data"}
        settings = _write_properties(Path(work) / "server.properties", properties)
        command = [str(java.executable), "-Xmx128m", "-cp", class_path(folder), "kafka.tools.StorageTool"]
        command += ["format", "-t", _kafka_id(), "-c", str(settings)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServiceError(f"Kafka's StorageTool failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        shutil.copy(Path(work) / "data" / "bootstrap.checkpoint", folder)


def _write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    return path


def _kafka_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
