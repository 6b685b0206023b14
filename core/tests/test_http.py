"""The HTTP server: who may read, one look at a database for all, and a database that is away."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from outbox_api import Backlog, ConfigError, DriverError, OutboxError, Parked, Upkeep
from outbox_console import app as app_module
from outbox_console import server as server_module
from outbox_console.app import application
from outbox_console.prometheus import Prometheus
from outbox_console.server import HttpServer
from outbox_core.config import parse
from outbox_core.leadership.leader import Totals
from outbox_core.monitoring.figures import Figures, RunningOutbox
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.settings import HarvestSettings, Settings
from outbox_core.status.snapshot import Snapshot, as_data

from .cli_runner import until
from .http_client import TOKEN, Site

SNAPSHOT = Snapshot(
    "outbox", Backlog(3, exact=True, oldest=1.5), Parked(0, None), [], 15.0, None, Upkeep(dead=7)
)
DATA = as_data(SNAPSHOT)


@dataclass
class Harvest:
    """A harvest that does nothing."""

    takes_part: bool = True
    leads: bool = False
    totals: Totals = field(default_factory=Totals)


class Database:
    """Counts the looks at it, each of which may hang or fail."""

    def __init__(self) -> None:
        self.looks = 0
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()

    @contextmanager
    def view(self) -> Iterator[Callable[[HarvestSettings], Snapshot]]:
        def look(_: HarvestSettings) -> Snapshot:
            self.looks += 1
            assert self.answers.wait(60)
            if self.error is not None:
                raise self.error
            return SNAPSHOT

        yield look


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made.answers.set()


def settings_of(http: object = None, outboxes: object = None) -> Settings:
    data = {"http": http or {"listen": "127.0.0.1:0"}, "harvest": {"engine": "inline"}}
    if outboxes is not None:
        data["outboxes"] = outboxes
    return parse(json.dumps(data))


@contextmanager
def serving(settings: Settings, database: Any, harvests: list[Harvest]) -> Iterator[Site]:
    def observe() -> list[RunningOutbox]:
        return [RunningOutbox(*each) for each in zip(settings.outboxes, harvests, strict=True)]

    looks = StatusPolls(database.view)
    app = application(settings, observe, looks, Prometheus(Figures(observe, looks), "test"))
    with HttpServer(settings.http.address._replace(port=0), app) as server:
        yield Site(server.address.port)


@pytest.fixture
def harvest() -> Harvest:
    return Harvest()


@pytest.fixture
def site(database: Database, harvest: Harvest) -> Iterator[Site]:
    with serving(settings_of(), database, [harvest]) as site:
        yield site


def test_a_process_lives_and_is_ready_while_it_takes_part(site: Site, harvest: Harvest):
    assert (site.get("/livez").code, site.get("/readyz").code) == (200, 200)
    harvest.takes_part = False
    assert (site.get("/livez").code, site.get("/readyz").code) == (200, 503)
    assert site.get("/nothing").code == 404


def test_one_look_serves_all_who_ask_within_a_second(site: Site, database: Database):
    started = time.monotonic()
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: site.json("/status"), range(200)))
    assert answers == [DATA] * 200
    assert 1 <= database.looks <= 2 + (time.monotonic() - started)


def test_nobody_waits_long_for_a_database_that_hangs(
    site: Site, database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(app_module, "STATUS_PATIENCE", 0.3)
    monkeypatch.setattr(app_module, "METRICS_PATIENCE", 0.3)
    database.answers.clear()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: site.json("/status", 503), range(40)))
    assert {answer["error"] for answer in answers} == {"the database has not answered for 300ms"}
    assert site.total("outbox_database_up") == 0
    assert "outbox_backlog" not in site.scrape()
    assert site.get("/livez").code == 200
    assert database.looks == 1  # no further one is begun meanwhile
    database.answers.set()
    until(lambda: site.get("/status").code == 200)
    until(lambda: site.total("outbox_backlog") == 3)


def test_a_database_that_is_away_is_told(site: Site, database: Database):
    database.error = DriverError("Connection refused", retryable=True)
    assert site.json("/status", 503) == {"error": "Connection refused"}
    assert site.total("outbox_database_up") == 0
    assert site.total("outbox_candidate") == 1


def test_a_defect_of_a_look_tells_nothing_of_it(
    site: Site, database: Database, caplog: pytest.LogCaptureFixture
):
    database.error = ValueError("hunter2")
    assert "hunter2" not in site.get("/status").text
    assert site.get("/status").code == 503
    assert "cannot be polled" in caplog.text


def test_several_outboxes_are_one_list(database: Database):
    settings = settings_of(outboxes={"a": {"outboxTable": "a"}, "b": {"outboxTable": "b"}})
    harvests = [Harvest(takes_part=False), Harvest(leads=True)]
    with serving(settings, database, harvests) as site:
        assert site.get("/readyz").code == 200
        status = site.json("/status")
        assert [each["label"] for each in status["outboxes"]] == ["a", "b"]
        assert status["outboxes"][0] == {"label": "a", **DATA}
        assert (
            site.total("outbox_leader", outbox_name="a"),
            site.total("outbox_leader", outbox_name="b"),
        ) == (0, 1)


def test_a_database_that_hangs_delays_no_look_at_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app_module, "STATUS_PATIENCE", 1.0)
    answers = threading.Event()

    @contextmanager
    def view() -> Iterator[Callable[[HarvestSettings], Snapshot]]:
        def look(outbox: HarvestSettings) -> Snapshot:
            assert outbox.title == "healthy" or answers.wait(60)
            return SNAPSHOT

        yield look

    hanging = {f"a{number}": {"outboxTable": f"a{number}", "dataSource": "host=away"} for number in range(20)}
    outboxes = {**hanging, "healthy": {"outboxTable": "b", "dataSource": "host=here"}}
    settings = settings_of(outboxes=outboxes)
    with serving(settings, SimpleNamespace(view=view), [Harvest() for _ in outboxes]) as site:
        for _ in range(2):
            # A busy machine may need longer than the patience.
            until(lambda: site.json("/status")["outboxes"][-1] == {"label": "healthy", **DATA})
            assert all("error" in each for each in site.json("/status")["outboxes"][:-1])
        answers.set()


def test_tokens_are_asked_for_but_by_probes(database: Database):
    settings = settings_of({"listen": "127.0.0.1:0", "viewerTokens": [TOKEN, "another-of-a-viewer"]})
    with serving(settings, database, [Harvest()]) as site:
        for path in ("/status", "/metrics"):
            refused = site.get(path)
            assert (refused.code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert site.get(path, Authorization="Bearer wrong").code == 401
            assert site.get(path, Authorization=f"Basic {TOKEN}").code == 401  # no name and password
            assert site.get(path, Authorization=f"bearer {TOKEN}").code == 200
            assert site.get(path, Authorization="Bearer another-of-a-viewer", Host="any.example").code == 200
        assert (site.get("/livez").code, site.get("/readyz").code) == (200, 200)
        assert "outbox" not in site.get("/readyz").text


def test_a_page_of_another_site_cannot_read_loopback(site: Site):
    for host, code in (("evil.example", 403), ("localhost:9", 200), ("127.0.0.1", 200), ("[::1]:80", 200)):
        assert site.get("/status", Host=host).code == code
    assert site.get("/livez", Host="evil.example").code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\n"])
def test_clients_that_ask_for_nothing_keep_nobody_away(
    site: Site, monkeypatch: pytest.MonkeyPatch, sent: bytes
):
    monkeypatch.setattr(server_module, "MOST", 20)
    with ExitStack() as silent:
        peers = [
            silent.enter_context(closing(socket.create_connection(("127.0.0.1", site.port), 60)))
            for _ in range(60)
        ]
        for peer in peers[-20:]:
            peer.sendall(sent)
        assert site.get("/livez").code == 200
        for peer in peers[:40]:  # the oldest are closed
            with suppress(ConnectionResetError):
                assert peer.recv(1) == b""


def test_clients_that_do_not_read_their_answers_keep_nobody_away(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_module, "MOST", 20)
    with ExitStack() as slow:
        peers = []
        for _ in range(40):
            peer = slow.enter_context(closing(socket.socket()))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            peer.settimeout(60)
            peer.connect(("127.0.0.1", site.port))
            with suppress(ConnectionResetError, BrokenPipeError):  # room is made for those that come later
                peer.sendall(b"GET /static/page.css HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
            peers.append(peer)
        assert site.get("/livez").code == 200
        for peer in peers[:20]:
            until(partial(_is_closed, peer))


def _is_closed(peer: socket.socket) -> bool:
    try:
        peer.sendall(b"\r\n")
    except ConnectionError:
        return True
    return False


def test_answers_are_not_stored(site: Site):
    for path in ("/livez", "/status", "/metrics", "/nothing"):
        headers = site.get(path).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
        assert "server" not in headers


def test_a_port_that_is_in_use(site: Site):
    address = settings_of().http.address._replace(port=site.port)
    with pytest.raises(OutboxError, match="is in use: choose another port"):
        HttpServer(address, application_of_nothing())


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine(host: str):
    address = settings_of().http.address._replace(host=host)
    with pytest.raises(ConfigError, match="name an address of this machine"):
        HttpServer(address, application_of_nothing())


def application_of_nothing() -> Any:
    looks = StatusPolls(Database().view)
    return application(settings_of(), list, looks, Prometheus(Figures(list, looks), "test"))


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("8080", "HOST:PORT"),
        (":8080", "HOST:PORT"),
        ("localhost:http", "HOST:PORT"),
        ("localhost:65536", "HOST:PORT"),
        ("::1:8080", "brackets"),
        ("0.0.0.0:8080", "set viewerTokens"),
        ("[::]:8080", "set viewerTokens"),
        ("outbox.example:8080", "set viewerTokens"),
    ],
)
def test_an_address_that_cannot_be_used(listen: str, said: str):
    with pytest.raises(ConfigError, match=said):
        settings_of({"listen": listen})


@pytest.mark.parametrize("listen", ["localhost:0", "127.0.0.7:8080", "[::1]:8080"])
def test_loopback_needs_no_token(listen: str):
    assert str(settings_of({"listen": listen}).http.address) == listen


def test_other_addresses_need_a_token():
    http = settings_of({"listen": "0.0.0.0:8080", "viewerTokens": [TOKEN]}).http
    assert str(http.address) == "0.0.0.0:8080"
    assert TOKEN not in repr(http)


@pytest.mark.parametrize("token", ["short", "with a blank in the middle", "ünicode-of-a-viewer"])
def test_a_token_that_is_no_use_is_not_quoted(token: str):
    with pytest.raises(ConfigError, match="openssl rand") as caught:
        settings_of({"listen": "127.0.0.1:0", "viewerTokens": [token]})
    assert token not in str(caught.value)


def test_without_an_address_nothing_is_served():
    assert parse("harvest: {engine: inline}").http.listen is None
