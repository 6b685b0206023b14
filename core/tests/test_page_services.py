"""The operator's page of outboxes in real databases, as `outbox run` serves it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from outbox_core.cli.run import monitored
from outbox_core.config import load
from outbox_core.monitoring.figures import RunningOutbox
from outbox_servers.services import free_port
from outbox_testkit.proxy import Proxy
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .cli_runner import NOWHERE, until
from .http_server import ALICE, VIEWER, Harvest, basic
from .page_site import AS_ALICE, AS_VIEWER, PageSite, hasten
from .test_operations_services import park
from .test_page_verbs import fields_of, follow


@contextmanager
def served(folder: Path, **harvest: str) -> Iterator[PageSite]:
    """Serves the page of an outbox whose keys a, b and c are parked, with two rows each."""
    file = folder / "outbox.yaml"
    http = {
        "listen": f"127.0.0.1:{free_port()}",
        "viewerTokens": [VIEWER],
        "operatorTokens": {"alice": ALICE},
    }
    file.write_text(
        json.dumps({"http": http, "harvest": {"elector": "static", "engine": "inline"} | harvest})
    )
    settings = load(file)
    park(settings.harvest)
    with monitored(settings, lambda: [RunningOutbox(settings.harvest, Harvest())], {}):
        yield PageSite(settings.http.address.port)


@pytest.fixture(params=["postgres", "sqlite"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PageSite]:
    hasten(monkeypatch)
    driver = request.param
    source = str(tmp_path / "outbox.db") if driver == "sqlite" else request.getfixturevalue("postgres_dsn")
    with served(tmp_path, dialect=driver, dataSource=source) as site:
        yield site


def test_an_operator_signs_in_looks_and_acts(site: PageSite):
    page = site.get("/", Accept="text/html")
    assert page.code == 401
    assert page.headers["www-authenticate"].startswith("Basic ")
    signed_in = basic(ALICE)[1]
    until(lambda: "1 problem: parked keys." in site.get("/", Authorization=signed_in).text)
    page = site.get("/", Authorization=signed_in)
    assert 'data-records="6"' in page.text
    ids = {key: row(page.text, key) for key in "abc"}
    assert "2 in the outbox" in site.get(f"/letter?id={ids['a']}&count=1", Authorization=signed_in).text
    assert "a 0" not in site.get(f"/letter?id={ids['a']}", Authorization=signed_in).text
    assert '<pre id="value">a 0</pre>' in post(site, signed_in, "/letter/reveal", id=ids["a"])

    asked = site.get(f"/do/retry?id={ids['a']}", Authorization=signed_in)
    said = post(site, signed_in, "/do/retry", reason="the limit is raised", **fields_of(asked))
    assert f"1 record tried again: {ids['a']}." in said
    asked = site.get(f"/do/skip?id={ids['b']}&id={ids['c']}", Authorization=signed_in)
    said = post(site, signed_in, "/do/skip", reason="nobody needs them", **fields_of(asked))
    assert f"2 records skipped: {ids['b']}, {ids['c']}." in said
    until(lambda: "No key is parked." in site.get("/", Authorization=signed_in).text)
    asked = site.get(f"/do/redrive?id={ids['b']}", Authorization=signed_in)
    assert "1 record stashed again" in post(site, signed_in, "/do/redrive", reason="oh", **fields_of(asked))
    asked = site.get("/do/raise-fence", Authorization=signed_in)
    assert "leader leads, with token" in asked.text
    assert "The fence is raised" in post(site, signed_in, "/do/raise-fence", reason="x", **fields_of(asked))

    journal = site.get("/journal", Authorization=signed_in).text
    verbs = re.findall(r'data-verb="([\w-]+)"', journal)
    assert verbs == ["raise-fence", "redrive", "skip", "retry", "reveal"]
    assert "nobody needs them" in journal
    assert site.get("/do/take-over?cluster=2", Authorization=signed_in, Accept="text/html").code == 409


def post(site: PageSite, signed_in: str, path: str, **fields: str) -> str:
    """Sends a form as a browser does, and returns the page that it leads to."""
    headers = (
        ("Authorization", signed_in),
        ("Accept", "text/html"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    )
    origin = ("Origin", f"http://127.0.0.1:{site.port}")
    body = urlencode(fields)
    assert site.ask("POST", path, *headers, ("Origin", "http://evil.example"), body=body).code == 403
    done = site.ask("POST", path, *headers, origin, body=body)
    if done.code != 303:
        assert done.code == 200, done.text
        return done.text
    return site.get(done.headers["location"], Authorization=signed_in).text


def row(page: str, key: str) -> str:
    """Returns the id of a key's dead letter."""
    before, _, _ = page.partition(f'data-key="{key}"')
    return before.rpartition('data-id="')[2].partition('"')[0]


def test_a_database_that_goes_away_while_somebody_looks(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
):
    hasten(monkeypatch)
    at = conninfo_to_dict(postgres_dsn)
    ports = [int(at["port"] or 0)]
    with Proxy(lambda: ports[-1]) as proxy:
        source = make_conninfo(postgres_dsn, host="127.0.0.1", port=proxy.port)
        with served(tmp_path, dialect="postgres", dataSource=source) as site:
            until(lambda: 'data-key="a"' in site.get("/", **AS_VIEWER).text)
            asked = site.get("/do/retry?all=1", **AS_ALICE)
            ports.append(NOWHERE)
            proxy.cut()
            until(lambda: "Database away" in site.get("/", **AS_VIEWER).text)
            page = site.get("/", **AS_VIEWER).text
            assert str(at["password"]) not in page
            assert 'id="state" class="stale"' in page
            assert 'data-key="a"' in page
            failed = site.post("/do/retry", ALICE, reason="x", **fields_of(asked))
            assert failed.code == 503
            assert "cannot connect" in failed.text
            assert "it may be done nevertheless" not in failed.text
            ports.pop()
            until(lambda: "Database away" not in site.get("/", **AS_VIEWER).text)
            done = site.post("/do/retry", ALICE, reason="x", **fields_of(asked))
            assert follow(site, done).startswith("3 records tried again")
