"""A real schema registry with Confluent's interface as a child process."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.error import URLError
from urllib.request import urlopen

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.java import Java, find_java
from outbox_servers.services.maven import Coordinate, fetch_jars
from outbox_servers.services.process import ServerProcess
from outbox_servers.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping

APICURIO: Coordinate = ("io.apicurio", "apicurio-registry-app", "3.0.9")

_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class ApicurioServer(Service):
    """Apicurio Registry on 127.0.0.1, for tests and demonstrations; its schemas are in memory.

    It is fetched from Maven Central once and kept in the cache folder.

    Args:
        folder: The folder of its log; by default a new temporary folder, deleted at the end.
        settings: Its settings by their own names.
        java: The Java that runs it; found by ``find_java`` if not given.
        progress: Receives lines of text while it is fetched and starts.
    """

    title: ClassVar[str] = "Apicurio"
    port_taken: ClassVar[str] = "in use"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        java: Java | None = None,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        self._settings = dict(settings or {})
        self._java = java
        self._progress = progress

    @property
    def url(self) -> str:
        """The address for clients of Confluent's registry.

        Raises:
            ServiceError: The server was never started.
        """
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def _launch(self) -> ServerProcess:
        java = self._java = self._java or find_java()
        jar = apicurio_jar(java, self._progress)
        self._progress(f"Starting Apicurio Registry on {self.url}")
        settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": str(self.port), **self._settings}
        options = [*_JVM, *(f"-D{name}={value}" for name, value in settings.items())]
        return ServerProcess(
            self.title,
            [str(java.executable), *options, "-jar", str(jar)],
            log=self.log,
            orphan_folder=self._orphan_folder,
        )

    def _ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310 - an address of this process
                return bool(answer.status == 200)  # noqa: PLR2004 - OK
        except (URLError, OSError):
            return False


def apicurio_jar(java: Java, progress: Progress = logged) -> Path:
    """Returns the registry's jar, which finds what it needs beside it; fetches it if it is not in the cache.

    Raises:
        ServiceError: It could not be fetched, or is not what it was.
    """
    name, version = APICURIO[1:]

    def build(folder: Path) -> None:
        progress(f"Fetching Apicurio Registry {version} from Maven Central (109 MB, once)")
        fetch_jars([APICURIO], folder / "archive", java, progress, archive=True)
        [archive] = (folder / "archive").iterdir()
        with zipfile.ZipFile(archive) as files:
            files.extractall(folder)
        archive.unlink()

    return cached_folder(f"{name}-{version}", build, progress=progress) / f"{name}-{version}-runner.jar"
