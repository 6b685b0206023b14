"""Who may do what over HTTP: tokens, what a request has to be like, and the settings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outbox_api import ConfigError
from outbox_api.base.finding import Level
from outbox_console import clients as clients_module
from outbox_console.access import Role
from outbox_console.listening import check_http
from outbox_core.cli.run import monitored
from starlette.routing import Route

from .cli_runner import told as told_by
from .http_client import Site
from .http_server import (
    ALICE,
    JSON,
    OPERATORS,
    ORIGIN,
    PROXY,
    READ,
    SAME,
    USER,
    VERB,
    VIEWER,
    Server,
    basic,
    bearer,
    error,
    serving,
    settings_of,
    verb,
)


@pytest.fixture(scope="module")
def open_site() -> Iterator[Site]:
    with serving(settings_of()) as site:
        yield site


@pytest.fixture(scope="module")
def tokens() -> Iterator[Server]:
    with serving(settings_of(viewerTokens=[VIEWER], operatorTokens=OPERATORS)) as site:
        yield site


def test_without_any_setting_everybody_reads_and_nobody_changes_anything(open_site: Site):
    assert open_site.get(READ).code == 200
    refused = verb(open_site, SAME)
    assert refused.code == 403
    assert "http.operatorTokens" in error(refused)
    assert "http.proxy" in error(refused)
    assert open_site.ask("GET", READ, ("Host", "evil.example")).code == 403
    assert open_site.ask("GET", READ, ("Host", "127.0.0.1@evil.example")).code == 403
    assert open_site.ask("GET", READ, ("Host", "[::1")).code == 403
    assert open_site.ask("GET", READ, (USER, "root")).code == 200
    assert verb(open_site, SAME, (USER, "root")).code == 403


def test_viewers_have_no_operator_without_a_token_of_one():
    with serving(settings_of(viewerTokens=[VIEWER])) as site:
        assert "configure http.operatorTokens" in error(verb(site, bearer(VIEWER)))


def test_tokens(tokens: Site):
    assert tokens.get(READ).code == verb(tokens).code == 401
    assert "invalid token; send a token" in verb(tokens, bearer("wrong")).text
    for token, read, changed in ((VIEWER, 200, 403), (ALICE, 200, 400), ("wrong", 401, 401), ("", 401, 401)):
        assert tokens.ask("GET", READ, bearer(token)).code == read
        assert verb(tokens, bearer(token)).code == changed
    refused = verb(tokens, bearer(VIEWER))
    assert error(refused) == "viewer may only read: an operator may do this"
    assert tokens.ask("GET", READ, bearer(ALICE), ("Host", "any.example")).code == 200


OPEN = {"/livez", "/readyz", "/static/{name}"}
SEARCHES = {"/kept": 200, "/letters": 303, "/waiting/key": 400}
"""What viewers ask by POST, which changes nothing; and how an empty form is answered."""


def test_nothing_else_is_open_and_nothing_is_changed_but_by_operators_on_this_site(tokens: Server):
    browser = basic(ALICE)
    form = ("Content-Type", "application/x-www-form-urlencoded")
    routes = [route for route in tokens.app.routes if isinstance(route, Route)]
    closed = [route for route in routes if route.path not in OPEN]
    assert {route.path for route in routes} >= {*OPEN, "/", "/status", "/metrics", VERB, READ}
    for route in closed:
        path = re.sub(r"\{.*?\}", "retry", route.path)
        for method in route.methods or ():
            assert tokens.ask(method, path, body="" if method == "POST" else None).code == 401, path
            if method == "POST":
                searched = SEARCHES.get(path, 403)
                assert tokens.ask(method, path, bearer(VIEWER), form, body="").code == searched, path
                assert tokens.ask(method, path, browser, form, body="").code == 403, path
                assert "another site" in tokens.ask(method, path, browser, form, body="").text, path


def test_a_token_in_an_address_is_refused_and_not_logged(tokens: Site, caplog: pytest.LogCaptureFixture):
    for name in ("token", "access_token"):
        refused = tokens.ask("GET", f"{READ}?{name}={ALICE}")
        assert (refused.code, "replace it" in error(refused)) == (400, True)
        assert ALICE not in refused.text
        assert tokens.ask("GET", f"{READ}?{name}={ALICE}", bearer(ALICE)).code == 400
    assert ALICE not in caplog.text


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Authorization", [f"Bearer {VIEWER}", f"Bearer {ALICE}"]),
        ("Origin", ["null", "http://127.0.0.1"]),
        ("Sec-Fetch-Site", ["cross-site", "same-origin"]),
        ("Host", ["127.0.0.1", "evil.example"]),
    ],
)
def test_headers_that_count_are_there_once(tokens: Site, name: str, values: list[str]):
    twice = [(name, value) for value in values]
    own = [] if name == "Authorization" else [bearer(ALICE)]
    assert tokens.ask("GET", READ, *own, *twice).code == 400
    assert verb(tokens, *own, *twice[::-1]).code == 400
    assert "ids" not in verb(tokens, *own, *twice).text


def test_nothing_is_changed_by_get_whatever_it_claims(tokens: Site):
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert tokens.ask(method, VERB, bearer(ALICE), ("X-HTTP-Method-Override", "POST")).code == 405
    assert tokens.ask("GET", f"{VERB}?_method=POST", bearer(ALICE)).code == 405
    assert tokens.ask("POST", "/api/parked", bearer(ALICE)).code == 405
    for path in ("/api/nothing", "/docs", "/redoc"):
        assert tokens.ask("GET", path, bearer(ALICE)).code == 404


def test_a_body_is_json_and_bounded(tokens: Site):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json-patch+json"):
        refused = tokens.ask("POST", VERB, bearer(ALICE), ("Content-Type", kind), body="{}")
        assert refused.code == 415
    long = '{"reason": "' + "x" * 70_000
    assert tokens.ask("POST", VERB, bearer(ALICE), JSON, body=long).code == 413
    chunks = b"11170\r\n" + long[:70_000].encode() + b"\r\n0\r\n\r\n"
    chunked = ("Transfer-Encoding", "chunked")
    assert tokens.ask("POST", VERB, bearer(ALICE), JSON, chunked, body=chunks).code == 413
    for unreadable in ("[" * 30_000, "[" + "9" * 5_000, b'{"reason": "\xff"}'):
        refused = tokens.ask("POST", VERB, bearer(ALICE), JSON, body=unreadable)
        assert (refused.code, error(refused)) == (400, "the body is no JSON that can be read")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "JSON"),
        ("[]", "object"),
        ('{"ids": []}', "ids: "),
        ('{"ids": ["1"]}', "ids.0: "),
        ('{"ids": [true]}', "ids.0: "),
        ('{"ids": [1.5]}', "ids.0: "),
        ('{"ids": [9223372036854775808]}', "ids.0: "),
        ('{"ids": [1], "id": 2}', "id: "),
        ('{"ids": [1], "reason": null}', "reason: "),
        ('{"ids": [1], "reason": "\\ud800"}', "reason: "),
        ('{"ids": [1], "\\ud800": 2}', "the JSON in the body: "),
        ("{'hunter2'", "the body is no JSON: "),
        ('{"ids": [1], "outbox": "hunter2"}', "outbox: this process harvests no outbox of that name"),
    ],
)
def test_a_wrong_body_is_refused_by_its_field(tokens: Site, body: str, said: str):
    refused = tokens.ask("POST", VERB, bearer(ALICE), JSON, body=body)
    assert refused.code == (404 if said.startswith("outbox: ") else 400)
    assert said in error(refused)
    assert "hunter2" not in refused.text


@pytest.mark.parametrize(
    ("http", "said"),
    [
        ({"operatorTokens": {"alice": "short"}}, "operatorTokens.alice is no use"),
        ({"operatorTokens": {" alice": ALICE}}, "the name of an operator"),
        ({"operatorTokens": {"a\nb": ALICE}}, "the name of an operator"),
        ({"operatorTokens": {"alice": VIEWER}, "viewerTokens": [VIEWER]}, "are the same"),
        ({"listen": "0.0.0.0:1"}, "set viewerTokens, operatorTokens or proxy"),
        ({"origin": "outbox.example"}, "such as https://outbox.example"),
        ({"origin": f"{ORIGIN}/"}, "without a path"),
        ({"origin": "https://a@outbox.example"}, "origin is none"),
        ({"proxy": PROXY}, "proxy needs origin"),
        ({"proxy": {**PROXY, "addresses": []}}, "addresses names none"),
        ({"proxy": {**PROXY, "addresses": ["10.1.2.3/8"]}}, "zeros behind"),
        ({"proxy": {**PROXY, "addresses": ["proxy.example"]}}, "neither an IP address"),
        ({"proxy": {**PROXY, "addresses": ["0.0.0.0/0"]}}, "is everybody"),
        ({"proxy": {**PROXY, "addresses": ["::/0"]}}, "is everybody"),
        ({"proxy": {**PROXY, "addresses": ["::ffff:10.0.0.1"]}}, "write 10.0.0.1"),
        ({"proxy": {**PROXY, "userHeader": "X Forwarded"}}, "no name of a header"),
        ({"proxy": {"addresses": ["10.0.0.1"]}}, "userHeader: missing"),
        ({"proxy": {**PROXY, "groupsHeader": None}}, "needs groupsHeader"),
        *(
            ({"path": path}, "path is none")
            for path in (
                "",
                "outbox",
                "//evil.example",
                "/a//b",
                "/..",
                "/a/../b",
                "/./a",
                "/a?b",
                "/a#b",
                "/a b",
            )
        ),
        *(({"path": path}, "path is none") for path in ("/ü", "/%2e%2e", '/"', "/a\n", "/{a}", "/a;b")),
        *(({"docs": link}, "docs is no address") for link in ("", "wiki", "http://wiki", "javascript:")),
        *(
            ({"origin": ORIGIN, "proxy": {**PROXY, "signOut": link}}, "signOut is no address")
            for link in (
                "",
                "sign_out",
                "//evil.example",
                "/\\evil.example",
                "javascript:alert(1)",
                "https://",
            )
        ),
    ],
)
def test_settings_that_are_no_use(http: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said) as caught:
        settings_of(**http)
    assert ALICE not in str(caught.value)
    assert VIEWER not in str(caught.value)


def test_another_address_needs_any_of_them():
    some: list[dict[str, Any]] = [{"operatorTokens": OPERATORS}, {"origin": ORIGIN, "proxy": PROXY}]
    for http in some:
        settings = settings_of(listen="0.0.0.0:1", **http).http
        assert ALICE not in repr(settings)
        assert not settings.is_open


class TestTokensInFiles:
    @pytest.fixture
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(clients_module, "FRESH_SECONDS", 0.0)
        path = tmp_path / "alice"
        path.write_text(f"{ALICE}\n")
        return path

    def test_a_replaced_file_counts_at_once(self, file: Path, caplog: pytest.LogCaptureFixture):
        caplog.set_level("INFO")
        settings = settings_of(viewerTokens=[VIEWER], operatorTokens={"alice": f"${{file:{file}}}"})
        with serving(settings) as site:
            assert verb(site, bearer(ALICE)).code == 400
            other = file.with_name("other")
            other.write_text("another-token-of-alice")
            other.replace(file)
            assert verb(site, bearer(ALICE)).code == 401
            assert verb(site, bearer("another-token-of-alice")).code == 400
            for content in ("", "short", None):
                file.write_text(content) if content is not None else file.unlink()
                for token in (ALICE, "another-token-of-alice", "short", ""):
                    assert verb(site, bearer(token)).code == 401
            assert site.ask("GET", READ, bearer(VIEWER)).code == 200
            file.write_text(ALICE)
            assert verb(site, bearer(ALICE)).code == 400
        told = [record for record in caplog.records if "operatorTokens.alice" in record.message]
        assert [record.levelname for record in told] == ["ERROR", "INFO"]
        assert str(file) in told[0].message
        assert "short" not in caplog.text

    def test_files_are_read_once_a_second_at_most(self, file: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.undo()
        settings = settings_of(operatorTokens={"alice": f"${{file:{file}}}"}).http
        now = 100.0
        tokens = clients_module.Tokens(settings, lambda: now)
        given = clients_module.digest(ALICE)
        assert tokens.bearer(given) == ("alice", Role.OPERATOR)
        file.unlink()
        now = 100.9
        assert tokens.bearer(given) == ("alice", Role.OPERATOR)
        now = 101.0
        assert tokens.bearer(given) is None

    def test_a_file_that_is_no_use_at_the_start(self, file: Path):
        file.write_text("hunter2")
        settings = settings_of(viewerTokens=[f"${{file:{file}}}"])
        with pytest.raises(ConfigError, match="is no use") as caught, monitored(settings, list, {}):
            pass
        assert str(file) in str(caught.value)
        assert "hunter2" not in str(caught.value)
        file.unlink()
        settings = settings_of(operatorTokens={"alice": f"${{file:{file}}}"})
        with (
            pytest.raises(ConfigError, match="cannot read the file") as caught,
            monitored(settings, list, {}),
        ):
            pass
        assert str(file) in str(caught.value)
        [error] = [each for each in check_http(settings.http) if each.level is Level.ERROR]
        assert str(file) in error.message

    def test_commands_that_serve_nothing_need_no_file(self, tmp_path: Path):
        config = tmp_path / "outbox.yaml"
        harvest = {"dialect": "sqlite", "dataSource": str(tmp_path / "box.db"), "elector": "static"}
        http = {"listen": "127.0.0.1:0", "operatorTokens": {"alice": "${file:/no/such/file}"}}
        config.write_text(json.dumps({"http": http, "harvest": {**harvest, "engine": "inline"}}))
        for command in (("init",), ("status", "--json"), ("journal",), ("parked", "list")):
            told_by(config, *command)
