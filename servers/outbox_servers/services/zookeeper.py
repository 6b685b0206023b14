"""A real ZooKeeper server as a child process."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.external import ZooKeeper
from outbox_servers.services.java import Java, find_java
from outbox_servers.services.kafka_home import write_properties
from outbox_servers.services.maven import Coordinate, fetch_jars
from outbox_servers.services.process import ServerProcess, ServiceError
from outbox_servers.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ZOOKEEPER_VERSION = "3.9.4"

# ZooKeeper's artifact does not depend on what only its server needs.
_OF_THE_SERVER = (
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ("org.slf4j", "slf4j-simple", "2.0.13"),  # writes to standard error
)

_DEBIAN_JARS = Path("/usr/share/java/zookeeper.jar")

_JVM = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

_SETTINGS = {
    "clientPortAddress": "127.0.0.1",
    # Sessions from 0.2 s on, and their ends are noticed within 0.1 s.
    "tickTime": "100",
    "maxSessionTimeout": "60000",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "ruok,srvr,cons",
}


class ZooKeeperServer(Service, ZooKeeper):
    """A standalone ZooKeeper that listens on 127.0.0.1, for tests and demonstrations.

    Its jars are fetched from Maven Central once and kept in the cache folder. It keeps its port, its data and
    its clients' sessions when it is stopped or killed and started again.

    Args:
        folder: The folder of data and log; by default a new temporary folder, deleted at the end.
        settings: Lines of ``zoo.cfg``, in addition to or instead of those set here.
        system_properties: Java system properties.
        java: The Java that runs it; found by ``find_java`` if not given.
        version: ZooKeeper's version, 3.8 or newer.
        progress: Receives lines of text while jars are fetched and the server starts.
    """

    title: ClassVar[str] = "ZooKeeper"
    port_taken: ClassVar[str] = "BindException"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        system_properties: Mapping[str, str] | None = None,
        java: Java | None = None,
        version: str = ZOOKEEPER_VERSION,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._system_properties = dict(system_properties or {})
        self._java = java
        self._version = version
        self._progress = progress

    @property
    def hosts(self) -> str:
        """The address, ``host:port``.

        Raises:
            ServiceError: The server was never started.
        """
        return f"127.0.0.1:{self.port}"

    def _launch(self) -> ServerProcess:
        java = self._java = self._java or find_java()
        jars = zookeeper_jars(java, self._progress, self._version)
        self._progress(f"Starting ZooKeeper on {self.hosts}")
        settings = {"dataDir": str(self.folder / "data"), "clientPort": str(self.port), **self._settings}
        path = write_properties(self.folder / "zoo.cfg", settings)
        properties = [f"-D{name}={value}" for name, value in self._system_properties.items()]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ServerProcess(
            self.title,
            [str(java.executable), *_JVM, *properties, "-cp", _class_path(jars), main, str(path)],
            log=self.log,
            environment={name: value for name, value in os.environ.items() if name != "CLASSPATH"},
            orphan_folder=self._orphan_folder,
        )

    def _ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
                probe.sendall(b"ruok")
                return probe.recv(4) == b"imok"
        except OSError:
            return False


def zookeeper_artifacts(version: str) -> Sequence[Coordinate]:
    """Returns what a server needs, besides its dependencies."""
    return (("org.apache.zookeeper", "zookeeper", version), *_OF_THE_SERVER)


def zookeeper_jars(
    java: Java, progress: Progress = logged, version: str = ZOOKEEPER_VERSION
) -> Sequence[Path]:
    """Returns ZooKeeper's jars, in a stable order; fetches them if they are not in the cache.

    The jars are those of the installation at ``ZOOKEEPER_HOME``, if that is set; or from Maven Central or, if
    that fails, of Debian's package ``zookeeper``.

    Raises:
        ServiceError: There are none.
    """
    if local := os.environ.get("ZOOKEEPER_HOME"):
        return _present(sorted((Path(local) / "lib").glob("*.jar")), f"at ZOOKEEPER_HOME, {local}")

    def build(folder: Path) -> None:
        progress(f"Fetching Apache ZooKeeper {version} from Maven Central (7 MB, once)")
        fetch_jars(zookeeper_artifacts(version), folder / "jars", java, progress)

    try:
        folder = cached_folder(f"zookeeper-{version}", build, progress=progress)
    except ServiceError:
        if not _DEBIAN_JARS.exists():
            raise
        return [_DEBIAN_JARS]  # its manifest names the others
    return _present(sorted((folder / "jars").glob("*.jar")), f"in the cache, {folder}")


def _present(jars: Sequence[Path], where: str) -> Sequence[Path]:
    if not jars:
        raise ServiceError(f"There are no jars of ZooKeeper {where}.")
    return jars


def _class_path(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))
