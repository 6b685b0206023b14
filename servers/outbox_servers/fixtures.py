"""Pytest fixtures; pytest loads them wherever outbox-servers is installed.

The first test of a run that uses a service starts it, and the end of the run stops it. All processes of a run
(pytest-xdist) share it. If a service is not available, the test fails; nothing is skipped.

Every run of pytest loads this module, so it imports clients only when a service is needed.
"""

from __future__ import annotations

import logging
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from outbox_servers.services.external import Etcd, Kafka, MySql, Postgres, ZooKeeper
    from outbox_servers.shared import RemoteServers, Shared, SharedServers

_FIXTURES = {f"{name}_server": name for name in ("postgres", "mysql", "mariadb", "etcd", "zookeeper")}
_FIXTURES |= {"kafka_broker": "kafka", "chromium_url": "chromium"}
_LOG_LINES = 40

_SERVERS = pytest.StashKey["_Servers"]()


class _Servers:
    """The servers of the run, which the process that was started first has, and the others ask for."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: dict[str, Shared] = {}
        self._own: SharedServers | None = None
        self._remote: RemoteServers | None = None

    def serve(self) -> tuple[str, bytes]:
        return self._ours().serve()

    def find(self, name: str) -> Shared:
        if name not in self._found:
            self._found[name] = self._finder().find(name)
        return self._found[name]

    def log_ends(self, item: pytest.Item) -> list[tuple[str, str]]:
        """Returns the last lines of the logs of what a test used: the run's servers and its own."""
        used = {_FIXTURES[each] for each in getattr(item, "fixturenames", ()) if each in _FIXTURES}
        shared = {name: self._found[name].log for name in used if name in self._found}
        ends = [(name, log.read_text(errors="replace")) for name, log in shared.items() if log]
        if services := sys.modules.get("outbox_servers.services.service"):
            ends += [(each.title, each.log_tail(_LOG_LINES)) for each in services.Service.opened]
        return [
            (f"end of the log of {name}", "\n".join(text.splitlines()[-_LOG_LINES:])) for name, text in ends
        ]

    def tell(self, line: str) -> None:
        """Shows in the terminal what a test starts or downloads itself."""
        self._finder().tell(line)

    def close(self) -> None:
        if self._own:
            self._own.close()

    def _finder(self) -> SharedServers | RemoteServers:
        given = getattr(self._config, "workerinput", {}).get("outbox_servers")
        if given is None:
            return self._ours()
        if self._remote is None:
            from outbox_servers.shared import RemoteServers  # noqa: PLC0415 - see above

            self._remote = RemoteServers(*given)
        return self._remote

    def _ours(self) -> SharedServers:
        if self._own is None:
            from outbox_servers.shared import SharedServers  # noqa: PLC0415 - see above

            self._own = SharedServers(self._tell)
        return self._own

    def _tell(self, line: str) -> None:
        manager = self._config.pluginmanager
        reporter, capture = manager.getplugin("terminalreporter"), manager.getplugin("capturemanager")
        if reporter and capture:
            with capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.write_line(f"→ {line}")


class _Teller(logging.Handler):
    """Shows each line of progress."""

    def __init__(self, servers: _Servers) -> None:
        super().__init__()
        self._servers = servers

    def emit(self, record: logging.LogRecord) -> None:
        self._servers.tell(record.getMessage())


def pytest_configure(config: pytest.Config) -> None:
    """Prepares the servers of the run; none is started yet."""
    config.stash[_SERVERS] = servers = _Servers(config)
    config.add_cleanup(servers.close)
    logger, teller = logging.getLogger("outbox.servers"), _Teller(servers)
    logger.setLevel(logging.INFO)
    logger.addHandler(teller)
    config.add_cleanup(lambda: logger.removeHandler(teller))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells each process of pytest-xdist where the servers of the run are."""
    node.workerinput["outbox_servers"] = node.config.stash[_SERVERS].serve()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the ends of the logs of the servers that a failed test used to its report."""
    report = yield
    if call.when == "call" and report.failed:
        report.sections += item.config.stash[_SERVERS].log_ends(item)
    return report


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Postgres:
    """A PostgreSQL server that the whole run shares; do not stop it."""
    from outbox_servers.services.external import ExternalPostgres  # noqa: PLC0415 - see above

    return ExternalPostgres(pytestconfig.stash[_SERVERS].find("postgres").address)


@pytest.fixture
def postgres_dsn(postgres_server: Postgres) -> Iterator[str]:
    """The libpq connection string of a database for the test alone; dropped afterwards."""
    yield from _database(postgres_server)


@pytest.fixture(scope="session")
def mysql_server(pytestconfig: pytest.Config) -> MySql:
    """A MySQL server that the whole run shares; do not stop it."""
    from outbox_servers.services.external import ExternalMySql  # noqa: PLC0415 - see above

    return ExternalMySql(pytestconfig.stash[_SERVERS].find("mysql").address)


@pytest.fixture
def mysql_dsn(mysql_server: MySql) -> Iterator[str]:
    """The address of a MySQL database for the test alone; dropped afterwards."""
    yield from _database(mysql_server)


@pytest.fixture(scope="session")
def mariadb_server(pytestconfig: pytest.Config) -> MySql:
    """A MariaDB server that the whole run shares; do not stop it."""
    from outbox_servers.services.external import ExternalMySql  # noqa: PLC0415 - see above

    return ExternalMySql(pytestconfig.stash[_SERVERS].find("mariadb").address)


@pytest.fixture
def mariadb_dsn(mariadb_server: MySql) -> Iterator[str]:
    """The address of a MariaDB database for the test alone; dropped afterwards."""
    yield from _database(mariadb_server)


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Kafka:
    """A Kafka cluster that the whole run shares; do not stop it."""
    from outbox_servers.services.external import ExternalKafka  # noqa: PLC0415 - see above

    return ExternalKafka(pytestconfig.stash[_SERVERS].find("kafka").address)


@pytest.fixture
def kafka_bootstrap(kafka_broker: Kafka) -> str:
    """The address of the run's Kafka, for ``bootstrap.servers``."""
    return kafka_broker.bootstrap


@pytest.fixture(scope="session")
def etcd_server(pytestconfig: pytest.Config) -> Etcd:
    """An etcd cluster that the whole run shares; do not stop it."""
    from outbox_servers.services.external import ExternalEtcd  # noqa: PLC0415 - see above

    return ExternalEtcd(pytestconfig.stash[_SERVERS].find("etcd").address)


@pytest.fixture(scope="session")
def zookeeper_server(pytestconfig: pytest.Config) -> ZooKeeper:
    """A ZooKeeper that the whole run shares; do not stop it."""
    from outbox_servers.services.external import ExternalZooKeeper  # noqa: PLC0415 - see above

    return ExternalZooKeeper(pytestconfig.stash[_SERVERS].find("zookeeper").address)


@pytest.fixture(scope="session")
def chromium_url(pytestconfig: pytest.Config) -> str:
    """The address, for CDP, of a browser that the whole run shares; each test opens a context of its own."""
    return pytestconfig.stash[_SERVERS].find("chromium").address


@pytest.fixture
def topic() -> str:
    """A topic name that was never used before; the topic is not created."""
    return f"test-{uuid.uuid4().hex}"


def _database(server: Postgres | MySql) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    yield server.create_database(name)
    server.drop_database(name)
