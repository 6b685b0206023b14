"""The server behind a real nginx: below a path, and several harvesters behind one address."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from outbox_core.config import parse
from outbox_core.settings import Settings
from outbox_servers.services import NginxServer

from .http_browser import Browser, fields_of
from .http_server import ALICE, SAME, VIEWER
from .page_site import Database, Operations, PageSite, serving
from .page_states import letter

DOCUMENT = Path(__file__).parents[2] / "docs" / "http.md"
PATH = "/ops/outbox"
FORWARD = "proxy_set_header Host $http_host; proxy_pass http://harvesters;"
CROSS = ("Sec-Fetch-Site", "cross-site")


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Operations:
    made = Operations([letter(7, "order-7"), letter(8, "order-8")])
    made.replace(monkeypatch)
    return made


def settings_of(name: str = "one", **http: object) -> Settings:
    served = {"listen": "127.0.0.1:0", "viewerTokens": [VIEWER], "operatorTokens": {"alice": ALICE}, **http}
    return parse(json.dumps({"http": served, "harvest": {"engine": "inline", "name": name}}))


def documented(begin: str, port: int, instead: Mapping[str, str]) -> str:
    """Returns the example for nginx that begins so, with a server on another port, and other texts in it."""
    pattern = rf"```nginx\s+({re.escape(begin)}.*?)```"
    [found] = re.findall(pattern, DOCUMENT.read_text("utf-8"), re.DOTALL)
    for text, other in {"127.0.0.1:8080": f"127.0.0.1:{port}", **instead}.items():
        assert text in found
        found = found.replace(text, other)
    return str(found)


def upstream(*sites: PageSite) -> str:
    servers = " ".join(f"server 127.0.0.1:{site.port};" for site in sites)
    return f"upstream harvesters {{ {servers} }}"


class TestBelowAPath:
    @pytest.fixture
    def site(self, operations: Operations) -> Iterator[PageSite]:
        with serving(settings_of(path=f"{PATH}/"), Database()) as site:
            yield site

    @pytest.fixture
    def browser(self, site: PageSite) -> Iterator[Browser]:
        other = "location / { default_type text/plain; return 200 another; }\n"
        with NginxServer(
            other + documented("location /outbox/ ", site.port, {"/outbox/": f"{PATH}/"})
        ) as nginx:
            yield Browser(nginx.port)

    def test_signing_in_looking_and_acting(self, browser: Browser, operations: Operations):
        asked = browser.get(f"{PATH}/")
        assert (asked.code, asked.headers["www-authenticate"].partition(" ")[0]) == (401, "Basic")
        browser.sign_in(ALICE)
        page = browser.get(f"{PATH}/")
        assert 'id="client">alice<' in page.text
        assert browser.get("/elsewhere").text == "another"

        linked = set(re.findall(r'(?:href|src|action|formaction|data-live)="([^"#]+)', unescape(page.text)))
        assert {each for each in linked if not each.startswith(f"{PATH}/")} == set()
        assert {f"{PATH}/static/page.js", f"{PATH}/outbox/live?name=outbox"} <= linked
        for each in linked:
            assert browser.get(each).code == 200, each

        asked = browser.get(f"{PATH}/do/retry?outbox=outbox&id=7")
        done = browser.send(f"{PATH}/do/retry", fields_of(asked) | {"reason": "x"})
        assert "1 record tried again: 7." in browser.follow(done).text
        assert [each.action.verb for each in operations.noted] == ["retry"]

    def test_a_page_of_another_site_is_refused(self, browser: Browser, operations: Operations):
        browser.sign_in(ALICE)
        fields = {"outbox": "outbox", "ids": "7", "reason": "x", "form": "abc"}
        for headers in ([CROSS], [("Origin", "https://evil.example")], [("Origin", "null")]):
            for path in ("/do/retry", "/do/raise-fence"):
                refused = browser.send(f"{PATH}{path}", fields, *headers)
                assert refused.code == 403
                assert "a page of another site may have made this request" in refused.text
        assert operations.noted == []

    def test_programs_and_probes(self, browser: Browser, site: PageSite):
        described = browser.get(f"{PATH}/openapi.json", accept="application/json")
        assert described.code == 401
        assert json.loads(described.text) == {"error": "send a token: Authorization: Bearer TOKEN"}
        browser.sign_in(VIEWER)
        described = browser.get(f"{PATH}/openapi.json")
        assert json.loads(described.text)["servers"] == [{"url": PATH}]
        for path in ("/livez", "/readyz", "/metrics", f"{PATH}/livez", f"{PATH}/readyz", f"{PATH}/metrics"):
            answered = site.get(path, Authorization=f"Bearer {VIEWER}")
            assert answered.code == 200, path
            assert site.get(path).code == (401 if "metrics" in path else 200)
        assert site.ask("GET", PATH).headers["location"] == f"{PATH}/"
        for path in ("/", "/status", "/api/parked", "/ops/outboxes", "/ops"):
            assert "begin with /ops/outbox/ (http.path)" in site.get(path).text
            assert site.get(path).code == 404


def test_users_of_a_proxy(operations: Operations, tmp_path: Path):
    proxy = {
        "addresses": ["127.0.0.1"],
        "userHeader": "X-Forwarded-User",
        "groupsHeader": "X-Forwarded-Groups",
        "operators": ["carol"],
        "operatorGroups": ["on-call"],
    }
    users = tmp_path / "users"
    users.write_text("carol:{PLAIN}one\ndave:{PLAIN}two\n")
    with serving(settings_of(origin="http://127.0.0.1", proxy=proxy), Database()) as site:
        location = documented(
            "location / {\n      auth_basic ", site.port, {"/etc/nginx/outbox.users": str(users)}
        )
        with NginxServer(location) as nginx:
            browser = Browser(nginx.port)

            def known(name: str, password: str) -> tuple[str, str]:
                return "Authorization", f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"

            carol, dave = known("carol", "one"), known("dave", "two")
            spoofed = [("X-Forwarded-User", "carol"), ("X-Forwarded-Groups", "on-call")]
            assert browser.send("/do/retry", {}).code == 401
            asked = browser.get("/do/retry?id=7", headers=[carol])
            fields = fields_of(asked) | {"reason": "x"}
            for refused in (
                browser.send("/do/retry", fields, carol, CROSS),
                browser.send("/do/retry", fields, dave, SAME, *spoofed),
            ):
                assert refused.code == 403
            assert operations.noted == []
            assert browser.send("/do/retry", fields, carol, SAME).code == 303
            assert [each.action.operator for each in operations.noted] == ["carol"]


class SignsIn(BaseHTTPRequestHandler):
    """Answers as oauth2-proxy answers nginx: whom the cookie names is signed in."""

    def do_GET(self) -> None:
        user = re.search(r"user=(\w+)", self.headers.get("Cookie", ""))
        if self.path == "/oauth2/auth":
            self.send_response(202 if user else 401)
        else:
            self.send_response(302)
            self.send_header(
                "Location", f"https://idp.example/?then={self.headers['X-Auth-Request-Redirect']}"
            )
        if user:
            self.send_header("X-Auth-Request-Email", f"{user[1]}@example.com")
        if user and user[1] == "carol":
            self.send_header("X-Auth-Request-Groups", "staff,on-call")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_users_who_are_sent_to_sign_in_elsewhere(operations: Operations):
    proxy = {
        "addresses": ["127.0.0.1"],
        "userHeader": "X-Forwarded-Email",
        "groupsHeader": "X-Forwarded-Groups",
        "operatorGroups": ["on-call"],
    }
    settings = settings_of(origin="http://127.0.0.1", proxy=proxy)
    with ThreadingHTTPServer(("127.0.0.1", 0), SignsIn) as signs_in, serving(settings, Database()) as site:
        Thread(target=signs_in.serve_forever, daemon=True).start()
        other = {"127.0.0.1:4180": f"127.0.0.1:{signs_in.server_port}"}
        with NginxServer(documented("location /oauth2/ ", site.port, other)) as nginx:
            browser = Browser(nginx.port)
            for path, accept in (("/outbox/live", "*/*"), ("/do/retry?id=7", "text/html")):
                sent = browser.get(path, accept)
                assert (sent.code, sent.headers["location"]) == (302, f"https://idp.example/?then={path}")
            browser.cookies["user"] = "carol"
            fields = fields_of(browser.get("/do/retry?id=7")) | {"reason": "x"}
            del browser.cookies["user"]
            assert browser.send("/do/retry", fields).code == 302
            browser.cookies["user"] = "dave"
            spoofed = [("X-Forwarded-Email", "carol@example.com"), ("X-Forwarded-Groups", "on-call")]
            refused = browser.send("/do/retry", fields, SAME, *spoofed)
            assert refused.code == 403
            assert "dave@example.com may only read" in refused.text
            assert operations.noted == []
            browser.cookies["user"] = "carol"
            assert browser.send("/do/retry", fields).code == 303
            assert [each.action.operator for each in operations.noted] == ["carol@example.com"]
        signs_in.shutdown()


class TestSeveralHarvestersInTurn:
    """Each request goes to the other one of two harvesters than the one before."""

    @pytest.fixture
    def sites(self, operations: Operations) -> Iterator[list[PageSite]]:
        proxy = {"addresses": ["127.0.0.1"], "userHeader": "X-User", "operators": ["carol"]}
        with ExitStack() as stack:
            yield [
                stack.enter_context(
                    serving(settings_of(name, origin="http://127.0.0.1", proxy=proxy), Database())
                )
                for name in ("one", "two")
            ]

    @contextmanager
    def _browser(self, sites: list[PageSite], *directives: str) -> Iterator[Browser]:
        with NginxServer(
            f"location / {{ {' '.join(directives)} {FORWARD} }}", http=upstream(*sites)
        ) as nginx:
            yield Browser(nginx.port)

    def test_all_know_a_token(self, sites: list[PageSite]):
        with self._browser(sites) as browser:
            browser.sign_in(ALICE)
            for _ in range(4):
                assert 'id="client">alice<' in browser.get("/").text

    def test_a_form_that_both_get_changes_a_record_once(self, sites: list[PageSite], operations: Operations):
        with self._browser(sites, "proxy_set_header X-User carol;") as browser:
            fields = fields_of(browser.get("/do/retry?id=7")) | {"reason": "x"}
            answers = [browser.send("/do/retry", fields) for _ in sites]
            told = [browser.follow(each).text for each in answers]
            assert "1 record tried again: 7." in told[0]
            assert "Nothing was changed. Not parked any more, and left alone: 7." in told[1]
            fields = fields_of(browser.get("/do/retry?id=8")) | {"reason": "x"}
            elsewhere = browser.follow(browser.send("/do/retry", fields)).text
            assert "The outcome is not known to this process" in elsewhere
            assert [each.record.id for each in operations.found] == []
