"""The peers: goharvest, and Debezium's outbox event router on Kafka Connect, also exactly once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from outbox_servers.services import ServiceError, find_java, free_port
from outbox_servers.services.cache import cached_folder
from outbox_servers.services.maven import fetch_jars
from outbox_servers.services.process import ServerProcess
from psycopg.conninfo import conninfo_to_dict

from bench.compare.candidates import Candidate, CandidateError, Subject, ending, logged, started, wait
from bench.compare.databases import DATABASES, MARIADB, MYSQL, POSTGRES
from bench.compare.servers import Place, found, say

DEBEZIUM = {POSTGRES: "3.6.1.Final", MYSQL: "3.6.1.Final", MARIADB: "3.5.0.Final"}
"""Database → Debezium's version, the last one that Maven Central has a connector of."""
CONNECT = "4.3.0"
_CLI = "org.apache.kafka.connect.cli"
# Those of Kafka's own script for Connect.
_CONNECT_JVM = ("-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class Goharvest(Candidate):
    """The reaper of goharvest.

    Args:
        name: Its name.
        source: A clone of its repository, which is built once, or the built program; None if there is none.
        limits: Keys below ``limits:``; the others have goharvest's defaults.
    """

    def __init__(self, name: str, source: Path | None, limits: Mapping[str, int]) -> None:
        super().__init__(name)
        self._source = source
        self._limits = dict(limits)
        self._program: Path | None = None

    def prepare(self) -> None:
        """Builds the program in the cache folder, unless it was given."""
        if self._source is None:
            raise CandidateError("no program: name its repository or its built reaper with --goharvest")
        source = self._source.expanduser().resolve()
        self._program = source if source.is_file() else _built(source)

    @contextmanager
    def running(self, place: Place) -> Iterator[Subject]:
        """Runs a reaper that leads."""
        assert self._program is not None, "prepare() comes first"
        topic = place.servers.topic("neli", partitions=1)
        harvest = {
            "baseKafkaConfig": {"bootstrap.servers": place.servers.bootstrap},
            "producerKafkaConfig": {"compression.type": "lz4"},
            "leaderTopic": topic,
            "leaderGroupID": topic,
            "dataSource": f"{place.dsn} sslmode=disable",
            "outboxTable": "outbox",
            "limits": self._limits,
        }
        settings = place.folder / "reaper.yaml"
        settings.write_text(json.dumps({"harvest": harvest, "logging": {"level": "Info"}}))
        process = started("reaper", [str(self._program), "-f", str(settings)], place)
        with ending(process):
            wait(process, logged(process, "Starting background delivery handler"))
            yield Subject({"subject": process})

    def version(self) -> str:
        """Returns the commit of the repository, if it was given."""
        if self._source is None or not self._source.is_dir():
            return ""
        command = ["git", "-C", str(self._source), "describe", "--always", "--tags"]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def _built(repository: Path) -> Path:
    """Builds the reaper of a repository outside it; returns the program."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise CandidateError("it is written in Go, and there is no Go compiler here")
    program = repository / "reaper-for-comparison"
    if not program.exists():
        say(f"building goharvest in {repository}")
        # Its go.sum is incomplete for today's compilers.
        command = [go, "build", "-mod=mod", "-o", str(program), "./cmd/reaper"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=repository)
        if done.returncode:
            raise CandidateError(f"go build failed:\n{done.stderr[-2000:]}")
    return program


class Debezium(Candidate):
    """Debezium's outbox event router on Kafka Connect, stand-alone.

    Args:
        name: Its name.
        database: The name of the database.
        deleting: Whether an application deletes the rows meanwhile, as the table would grow otherwise.
        connector: Settings of the connector besides those that say what to read and where it is.
        worker: Settings of Connect besides those.
    """

    def __init__(
        self,
        name: str,
        database: str,
        *,
        deleting: bool = False,
        connector: Mapping[str, str] | None = None,
        worker: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name)
        self.databases = (POSTGRES,) if deleting else DATABASES
        self._database = database
        self._debezium = DEBEZIUM[database]
        self.deleting = deleting
        self._connector = dict(connector or {})
        self._worker = dict(worker or {})
        self.jars: Path | None = None

    def prepare(self) -> None:
        """Fetches Connect and Debezium from Maven Central into the cache folder, once."""
        jars = (
            ("org.apache.kafka", "connect-runtime", CONNECT),
            ("org.apache.kafka", "connect-json", CONNECT),
            ("io.debezium", f"debezium-connector-{self._database}", self._debezium),
            ("io.debezium", "debezium-embedded", self._debezium),
            ("org.slf4j", "slf4j-simple", "1.7.36"),
        )

        def build(folder: Path) -> None:
            say(f"fetching Debezium {self._debezium} and Kafka Connect {CONNECT} from Maven Central (once)")
            fetch_jars(jars, folder / "jars", find_java(), say, Path(__file__).with_name("jars.sha256"))

        name = f"debezium-{self._database}-{self._debezium}-connect-{CONNECT}"
        try:
            self.jars = cached_folder(name, build, progress=say) / "jars"
        except ServiceError as error:
            raise CandidateError(f"its jars cannot be fetched: {error}") from error

    @contextmanager
    def running(self, place: Place) -> Iterator[Subject]:
        """Runs Connect with one connector, which reads what is written from now on."""
        assert self.jars is not None, "prepare() comes first"
        java = find_java()
        command = [str(java.executable), *_CONNECT_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", f"{self.jars}/*"]
        with ExitStack() as stack:
            process = stack.enter_context(self._connect(place, command))
            connection = stack.enter_context(place.connect())
            streams = place.servers.database.streams.format(place.database)
            wait(process, lambda: found(connection, streams) is not None)
            subject = {"subject": process}
            if self.deleting:
                program = [sys.executable, "-m", "bench.compare.housekeeping", place.dsn]
                subject["application"] = started("application", program, place, _here())
                stack.enter_context(ending(subject["application"]))
            yield Subject(subject, empties=False, housekeeping=self.deleting)

    @contextmanager
    def _connect(self, place: Place, java: list[str]) -> Iterator[ServerProcess]:
        """Runs Connect with the connector until the block ends."""
        settings = _properties(place.folder / "connector.properties", self._settings(place))
        own = {"offset.storage.file.filename": str(place.folder / "offsets")}
        with self._worker_process(place, [*java, f"{_CLI}.ConnectStandalone"], own, str(settings)) as process:
            yield process

    def _settings(self, place: Place) -> dict[str, str]:
        return {**_connector(place), **self._connector}

    @contextmanager
    def _worker_process(
        self, place: Place, command: list[str], own: Mapping[str, str], *connectors: str
    ) -> Iterator[ServerProcess]:
        worker = _properties(place.folder / "worker.properties", {**_worker(place), **self._worker, **own})
        environment = {name: value for name, value in os.environ.items() if name != "CLASSPATH"}
        process = started("connect", [*command, str(worker), *connectors], place, environment)
        with ending(process):
            yield process

    def version(self) -> str:
        """Returns Debezium's version and Connect's."""
        return f"{self._debezium}, Connect {CONNECT}"


class DebeziumExactlyOnce(Debezium):
    """As ``Debezium``, in a cluster of one worker of Connect, which writes records and offsets together.

    Connect offers that in clusters alone (KIP-618). A transaction has what the connector returns at a time.
    """

    @contextmanager
    def _connect(self, place: Place, java: list[str]) -> Iterator[ServerProcess]:
        address = f"http://127.0.0.1:{free_port()}"
        own = {"group.id": place.topic, "exactly.once.source.support": "enabled", "listeners": address}
        for kind in ("config", "offset", "status"):
            own[f"{kind}.storage.topic"] = f"{place.topic}-{kind}"
            own[f"{kind}.storage.replication.factor"] = "1"
        with self._worker_process(place, [*java, f"{_CLI}.ConnectDistributed"], own) as process:
            config = f"{address}/connectors/outbox/config"
            wait(process, lambda: _accepted(config, self._settings(place)))
            yield process

    def _settings(self, place: Place) -> dict[str, str]:
        own = {"exactly.once.support": "required", "transaction.boundary": "poll"}
        return {**super()._settings(place), **own}


def _accepted(address: str, settings: Mapping[str, str]) -> bool:
    """Returns whether Connect, which may not serve yet, has accepted a connector's settings.

    Raises:
        CandidateError: It refuses them.
    """
    content = {"Content-Type": "application/json"}
    body = json.dumps(dict(settings)).encode()
    try:
        with urlopen(Request(address, body, content, method="PUT"), timeout=30):
            return True
    except HTTPError as error:
        if error.code == HTTPStatus.BAD_REQUEST:
            raise CandidateError(f"Connect refuses the connector: {error.read().decode()}") from error
        return False
    except OSError:
        return False


def _here() -> dict[str, str]:
    """Returns an environment in which Python finds this package from any folder."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}


def _worker(place: Place) -> dict[str, str]:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": place.servers.bootstrap,
        "key.converter": converter,
        "value.converter": converter,
        "listeners": f"http://127.0.0.1:{free_port()}",
        "plugin.discovery": "service_load",
        "producer.compression.type": "lz4",
    }


def _connector(place: Place) -> dict[str, str]:
    router = "transforms.outbox"
    return {
        "name": "outbox",
        "tasks.max": "1",
        "topic.prefix": "bench",
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        **(_postgres(place) if place.servers.database.name == POSTGRES else _mysql(place)),
        "transforms": "outbox",
        f"{router}.type": "io.debezium.transforms.outbox.EventRouter",
        f"{router}.table.field.event.id": "id",
        f"{router}.table.field.event.key": "kafka_key",
        f"{router}.table.field.event.payload": "kafka_value",
        f"{router}.route.by.field": "kafka_topic",
        f"{router}.route.topic.replacement": "${routedByValue}",
    }


def _postgres(place: Place) -> dict[str, str]:
    address = conninfo_to_dict(place.dsn)
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": str(address["host"]),
        "database.port": str(address["port"]),
        "database.user": str(address["user"]),
        "database.password": str(address["password"]),
        "database.dbname": place.database,
        "slot.name": place.database,
        "publication.name": place.database,
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.outbox",
    }


def _mysql(place: Place) -> dict[str, str]:
    address = urlsplit(place.dsn)
    kind = {MYSQL: "mysql.MySql", MARIADB: "mariadb.MariaDb"}[place.servers.database.name]
    history = "schema.history.internal"
    return {
        "connector.class": f"io.debezium.connector.{kind}Connector",
        "database.hostname": str(address.hostname),
        "database.port": str(address.port),
        "database.user": str(address.username),
        "database.password": str(address.password),
        "database.server.id": "5401",
        "database.include.list": place.database,
        "table.include.list": f"{place.database}.outbox",
        "include.schema.changes": "false",
        history: "io.debezium.storage.file.history.FileSchemaHistory",
        f"{history}.file.filename": str(place.folder / "history"),
    }


def _properties(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path.chmod(0o600)
    return path
