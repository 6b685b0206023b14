"""Kafka's jars, and what is prepared from them once: formatted storage and an archive of loaded classes."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.maven import Coordinate, fetch_jars
from outbox_servers.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outbox_servers.services.java import Java

KAFKA_VERSION = "4.1.0"

# Kafka logs with SLF4J, and its artifact has no logger; this one writes to standard error.
_LOGGER = ("org.slf4j", "slf4j-simple", "1.7.36")

_FORMAT_SETTINGS = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:1",
    "controller.quorum.voters": "1@127.0.0.1:1",
}

_CHECKPOINT = "bootstrap.checkpoint"


def kafka_artifacts(version: str) -> Sequence[Coordinate]:
    """Returns what a broker needs, besides its dependencies."""
    return (("org.apache.kafka", "kafka_2.13", version), _LOGGER)


def kafka_home(java: Java, progress: Progress = logged, version: str = KAFKA_VERSION) -> Path:
    """Returns the cached folder of Kafka's ``jars`` and what is prepared from them; creates it if missing.

    The jars are from Maven Central or, if that fails, from the installation at ``KAFKA_HOME``, whatever its
    version.

    Raises:
        ServiceError: There are no jars, or they do not run.
    """

    def build(folder: Path) -> None:
        progress(f"Fetching Apache Kafka {version} from Maven Central (43 MB, once)")
        fetch_jars(kafka_artifacts(version), folder / "jars", java, progress)
        _format(folder, java)

    try:
        return cached_folder(f"kafka-{version}", build, progress=progress)
    except ServiceError:
        local = os.environ.get("KAFKA_HOME")
        if not local:
            raise
        progress(f"Kafka could not be fetched; using {local}")
        return installed_home(Path(local), java)


def installed_home(installation: Path, java: Java) -> Path:
    """Returns a folder like ``kafka_home``'s for the jars of an unpacked Kafka distribution (4.0 or newer).

    Raises:
        ServiceError: It has no jars, or they do not run.
    """
    jars = sorted((installation / "libs").glob("*.jar"))
    if not jars:
        raise ServiceError(f"There is no Kafka at {installation}: its folder libs has no jars.")

    def build(folder: Path) -> None:
        (folder / "jars").mkdir()
        for jar in jars:
            (folder / "jars" / jar.name).symlink_to(jar.resolve())
        _format(folder, java)

    identity = hashlib.sha256("\n".join(map(str, jars)).encode()).hexdigest()[:16]
    return cached_folder(f"kafka-installed-{identity}", build)


def class_path(home: Path) -> str:
    """Returns the jars of a ``kafka_home`` in a stable order, which a class archive depends on."""
    return os.pathsep.join(str(jar) for jar in sorted((home / "jars").glob("*.jar")))


def write_storage(home: Path, data: Path, node: int, cluster: str) -> None:
    """Fills a new storage folder like Kafka's StorageTool, without the second for a JVM.

    Args:
        home: The folder of ``kafka_home``.
        data: The storage folder, which does not exist yet.
        node: The broker's number in its cluster.
        cluster: The cluster's id, of ``new_id``.
    """
    data.mkdir()
    shutil.copy(home / _CHECKPOINT, data)
    identity = {"version": "1", "node.id": str(node), "cluster.id": cluster, "directory.id": new_id()}
    write_properties(data / "meta.properties", identity)


def cluster_id(data: Path) -> str:
    """Returns the cluster id of a storage folder."""
    lines = (data / "meta.properties").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["cluster.id"]


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Writes a Java properties file and returns its path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    return path


class ClassArchive:
    """An archive of the classes that Kafka loads at its start (CDS), which makes later starts faster.

    The first broker that stops in order creates the archive for all later ones with the same Java.

    Attributes:
        pending: Whether the running broker will create it.
    """

    def __init__(self, java: Java, home: Path, folder: Path) -> None:
        identity = hashlib.sha256(f"{java.executable} {java.version}".encode()).hexdigest()[:16]
        self._archive = home / f"classes-{identity}.jsa"
        self._dump = folder / "classes.jsa"
        self._shares = java.has_class_archive()
        self.pending = self._shares and not self._archive.is_file()

    def options(self) -> list[str]:
        """Returns Java options for the broker."""
        if not self._shares:
            return []
        # An archive that does not fit (another build of Java) is ignored, without a log line.
        quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
        if self.pending:
            return [f"-XX:ArchiveClassesAtExit={self._dump}", *quiet]
        return [f"-XX:SharedArchiveFile={self._archive}", *quiet]

    def keep(self) -> None:
        """Moves the archive of a stopped broker, if there is one, to where later brokers find it."""
        if not self._dump.is_file():
            return
        # The cache may be on another file system; a rename there shows the complete file only.
        handle, name = tempfile.mkstemp(dir=self._archive.parent, prefix=".classes-")
        with os.fdopen(handle, "wb") as copy, self._dump.open("rb") as dump:
            shutil.copyfileobj(dump, copy)
        Path(name).replace(self._archive)
        self._dump.unlink()
        self.pending = False


def _format(folder: Path, java: Java) -> None:
    """Lets Kafka format a storage folder, and keeps the part that is the same for every broker."""
    with tempfile.TemporaryDirectory(prefix="outbox-format-") as work:
        settings = {**_FORMAT_SETTINGS, "log.dirs": f"{work}/data"}
        path = write_properties(Path(work) / "server.properties", settings)
        command = [str(java.executable), "-Xmx128m", "-cp", class_path(folder), "kafka.tools.StorageTool"]
        command += ["format", f"--cluster-id={new_id()}", "-c", str(path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - all parts are our own
        if done.returncode != 0:
            raise ServiceError(f"Kafka's StorageTool failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        shutil.copy(Path(work) / "data" / _CHECKPOINT, folder)


def new_id() -> str:
    """Returns an id that no cluster and no storage folder has."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
