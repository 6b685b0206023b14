"""TLS to PostgreSQL, MySQL and MariaDB: a good certificate, and each way in which one can be bad."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from outbox_api import AccessDenied, DriverError, Finding, Level, Seam, find
from outbox_api.support import tls
from outbox_servers.certificates import Authority, Certificate
from outbox_servers.services import Kafka
from outbox_servers.services import Postgres as Server
from outbox_servers.services.mysql import MariaDbServer, MySqlServer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .databases import Database, MySql, Postgres
from .harvesters import Fleet
from .shop import Shop
from .tls_front import TlsFront

pytestmark = pytest.mark.timeout(300)

PROBLEMS: dict[str, tuple[Callable[[Authority, Authority], Certificate], str]] = {
    "wrong host name": (
        lambda own, _: own.issue("other", ["db.example"]),
        "the server's certificate is for another host name",
    ),
    "expired": (
        lambda own, _: own.issue("old", expired=True),
        "the server's certificate has expired: renew it on the server",
    ),
    "unknown authority": (
        lambda _, stranger: stranger.issue("server"),
        "an unknown authority has signed the server's certificate: set {authority} to the file",
    ),
}


class Site(ABC):
    """A server whose certificate the test chooses.

    Attributes:
        driver: Its dialect's driver.
        authority_setting: Which setting names the authority.
        modes: How a connection can be made to it → what is said of its protection; empty for a good one.
        impossible: Problems that its certificate cannot have.
    """

    driver: ClassVar[str]
    authority_setting: ClassVar[str]
    modes: ClassVar[dict[str, str]]
    impossible: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = Authority(folder)
        self.stranger = Authority(folder, "stranger")
        self.source = ""

    @abstractmethod
    def start(self, stack: ExitStack, request: pytest.FixtureRequest) -> Database:
        """Starts the server with a good certificate; returns its database, for the shop."""

    @abstractmethod
    def present(self, certificate: Certificate) -> None:
        """Has the server present another certificate from now on."""

    @abstractmethod
    def reached(self, mode: str) -> str:
        """Returns the data source for one of the modes."""

    @property
    def verified(self) -> str:
        """The data source that verifies the server."""
        return self.reached(next(mode for mode, said in self.modes.items() if not said))

    def dialect(self, source: str) -> Any:
        driver = find(Seam.DIALECT, self.driver)
        return driver.create(driver.options(data_source=source))


class PostgresSite(Site):
    driver = "postgres"
    authority_setting = "sslrootcert"
    modes: ClassVar[dict[str, str]] = {
        "disable": "in clear; sslmode is disable",
        "prefer": "certificate is not verified; sslmode is prefer, which takes a connection in clear as well",
        "require": "certificate is not verified; sslmode is require",
        "verify-ca": "name is not verified; sslmode is verify-ca",
        "verify-full": "",
    }

    def start(self, stack: ExitStack, request: pytest.FixtureRequest) -> Database:
        server: Server = request.getfixturevalue("postgres_server")
        name = f"test_{uuid4().hex}"
        dsn = server.create_database(name)
        stack.callback(server.drop_database, name)
        self._front = TlsFront(int(conninfo_to_dict(dsn)["port"] or 0))  # the server's build knows no TLS
        stack.callback(self._front.close)
        self.present(self.authority.issue("server"))
        self.source = make_conninfo(dsn, host="localhost", port=self._front.port)
        return Postgres(self.source)

    def present(self, certificate: Certificate) -> None:
        self._front.present(certificate)

    def reached(self, mode: str) -> str:
        named = {"sslrootcert": str(self.authority.certificate)} if mode.startswith("verify") else {}
        return make_conninfo(self.source, sslmode=mode, **named)


class MySqlSite(Site):
    driver = "mysql"
    authority_setting = "ssl-ca"
    server: ClassVar[type[MySqlServer | MariaDbServer]] = MySqlServer
    reload: ClassVar[str] = "ALTER INSTANCE RELOAD TLS"
    impossible = frozenset({"expired"})  # the server refuses to load it
    modes: ClassVar[dict[str, str]] = {
        "DISABLED": "in clear; ssl-mode is DISABLED",
        "PREFERRED": "certificate is not verified; ssl-mode is PREFERRED, which takes a connection in clear",
        "REQUIRED": "certificate is not verified; ssl-mode is REQUIRED",
        "VERIFY_CA": "name is not verified; ssl-mode is VERIFY_CA",
        "VERIFY_IDENTITY": "",
    }

    def start(self, stack: ExitStack, request: pytest.FixtureRequest) -> Database:
        good = self.authority.issue("server")
        shutil.copy(good.certificate, self._folder / "cert.pem")
        shutil.copy(good.key, self._folder / "key.pem")
        files = {f"ssl-{name}": str(self._folder / f"{name}.pem") for name in ("ca", "cert", "key")}
        # The server refuses certificates of an authority that it does not know.
        both = [authority.certificate.read_text() for authority in (self.authority, self.stranger)]
        (self._folder / "ca.pem").write_text("".join(both))
        self._server = stack.enter_context(self.server(settings=files))
        self.source = self._server.create_database("shop").replace("127.0.0.1", "localhost")
        return MySql(self.source)

    def present(self, certificate: Certificate) -> None:
        shutil.copy(certificate.certificate, self._folder / "cert.pem")
        shutil.copy(certificate.key, self._folder / "key.pem")
        self.execute(self.reload)

    def execute(self, *statements: str) -> None:
        with self._server.connect(autocommit=True) as admin, admin.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def reached(self, mode: str) -> str:
        named = f"&ssl-ca={self.authority.certificate}" if mode.startswith("VERIFY") else ""
        return f"{self.source}?ssl-mode={mode}{named}"


class MariaDbSite(MySqlSite):
    server = MariaDbServer
    reload = "FLUSH SSL"
    impossible = frozenset()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(PostgresSite, id="postgres"),
        pytest.param(MySqlSite, id="mysql", marks=pytest.mark.slow),
        pytest.param(MariaDbSite, id="mariadb", marks=pytest.mark.slow),
    ],
)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, Database]]:
    """Each server in turn."""
    with ExitStack() as stack:
        site = request.param(tmp_path_factory.mktemp("certificates"))
        database = site.start(stack, request)
        database.open()
        yield site, database


@pytest.fixture
def site(opened: tuple[Site, Database]) -> Site:
    return opened[0]


@pytest.fixture
def shop(opened: tuple[Site, Database], kafka_broker: Kafka, topic: str) -> Shop:
    shop = Shop(opened[1], kafka_broker, topic)
    shop.create_topic()
    return shop


def test_records_flow_over_a_verified_connection(site: Site, shop: Shop, fleet: Fleet) -> None:
    site.present(site.authority.issue("server"))
    harvester = fleet.start("a", dataSource=site.verified)
    harvester.wait_for("leader acquired", 120)
    shop.stash(300, keys=7)
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert result.good, result.summary()
    harvester.leave()


def test_the_check_warns_of_what_is_not_verified_on_the_way_to_another_machine(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.present(site.authority.issue("server"))
    assert transport(site.dialect(site.reached(next(iter(site.modes))))) == []
    monkeypatch.setattr(tls, "is_local", lambda host: host != "localhost")
    for mode, said in site.modes.items():
        [finding] = transport(site.dialect(site.reached(mode)))
        assert finding.level is (Level.WARNING if said else Level.OK), mode
        assert said in finding.message
        assert not said or "localhost" in finding.message
        assert not said or site.authority_setting in finding.cure


def test_a_bad_certificate_is_told_with_its_cure(site: Site) -> None:
    dialect = site.dialect(site.verified)
    for problem, (issue, said) in PROBLEMS.items():
        if problem in site.impossible:
            continue
        site.present(issue(site.authority, site.stranger))
        with pytest.raises(DriverError) as caught:
            dialect.connect()
        assert said.format(authority=site.authority_setting) in str(caught.value), problem
        assert not caught.value.retryable
        assert any(said.split(":")[0] in finding.message for finding in dialect.check())
        with closing(site.dialect(site.source).stash_connection()):
            pass  # who verifies nothing gets in


def test_an_account_that_must_show_a_certificate(site: Site) -> None:
    if not isinstance(site, MySqlSite):
        return  # PostgreSQL's client is libpq, which the front does not ask for one
    site.present(site.authority.issue("server"))
    site.execute("CREATE USER shown REQUIRE X509", "GRANT ALL ON shop.* TO shown")
    own = site.authority.issue("shown", [])
    address = urlsplit(site.verified)
    shown = address._replace(netloc=f"shown@localhost:{address.port}").geturl()
    with pytest.raises(AccessDenied):
        site.dialect(shown).connect()
    shown += f"&ssl-cert={own.certificate}&ssl-key={own.key}"
    site.dialect(shown).connect().close()


def transport(dialect: Any) -> list[Finding]:
    return [finding for finding in dialect.check() if finding.subject == "transport"]
