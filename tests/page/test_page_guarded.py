"""Who may do nothing on the page does nothing: viewers, pages of other sites, and whoever only reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest
from outbox_servers.services import NginxServer
from playwright.sync_api import Page, expect

from .scene import NOWHERE, OPERATORS, VIEWER, Scene
from .visitors import Visitors

VERBS = ("retry", "skip", "redrive", "raise-fence", "take-over", "end-takeover", "reveal")
REASON = "from another site"


class OtherSite(BaseHTTPRequestHandler):
    """Answers every request with the same page."""

    page: ClassVar[str] = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.page.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def other_port() -> Iterator[int]:
    """The port of a server with pages of another origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherSite) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def parked(page: Page, scene: Scene, key: str) -> str:
    """Parks a key, and returns the id of its record as soon as the page shows it."""
    scene.stash((key, "1"), topic=NOWHERE)
    shown = page.locator(f'tr[data-key="{key}"]')
    expect(shown).to_be_visible()
    return shown.get_attribute("data-id") or ""


def test_a_viewer_sees_no_verbs_and_is_refused_when_posting_by_hand(scene: Scene, visitors: Visitors) -> None:
    page, before = visitors.signed_in(scene.url, VIEWER), len(scene.journal())
    number = parked(page, scene, "viewed")
    expect(page.locator("#viewer")).to_contain_text("You may only read")
    page.locator('tr[data-key="viewed"]').get_by_role("link").click()
    expect(page.get_by_text("only operators may see them")).to_be_visible()
    views = [f"{scene.url}/{name}?outbox=outbox" for name in ("journal", "letters", "waiting")]
    acting = "main :is(form:not([role='search']), :is(button, input):not([role='search'] *), a[href*='/do/'])"
    for address in (scene.url, page.url, *views):
        page.goto(address)
        expect(page.locator(acting)).to_have_count(0)
    for path in ("/do/retry", "/do/skip", "/do/raise-fence", "/letter/reveal"):
        status = page.evaluate(
            """async ([path, fields]) => {
                const body = new URLSearchParams(fields);
                return (await fetch(path, {method: "POST", body})).status;
            }""",
            [path, {"outbox": "outbox", "ids": number, "id": number, "reason": "by hand"}],
        )
        assert status == 403, path
    answer = page.goto(f"{scene.url}/do/retry?id={number}")
    assert answer
    assert answer.status == 403
    expect(page.get_by_text("may only read")).to_be_visible()
    assert len(scene.journal()) == before


def form(url: str, path: str, fields: dict[str, str]) -> str:
    inputs = "".join(f'<input name="{name}" value="{escape(value)}">' for name, value in fields.items())
    return (
        f'<form method="post" action="{url}{path}">{inputs}</form><script>document.forms[0].submit()</script>'
    )


# The browser may send what it remembers with requests of pages of other sites.
@pytest.mark.parametrize(
    ("host", "codes"),
    [("127.0.0.1", {403}), pytest.param("localhost", {401, 403}, marks=pytest.mark.slow)],
)
def test_a_page_of_another_site_is_refused_and_changes_nothing(
    scene: Scene, visitors: Visitors, other_port: int, host: str, codes: set[int]
) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"])
    number = parked(page, scene, f"of {host}")
    fields = {"outbox": "outbox", "ids": number, "id": number, "reason": REASON}
    before, token = len(scene.journal()), page.locator("#leader-token").inner_text()
    for path in ("/do/retry", "/do/skip", "/do/raise-fence", "/letter/reveal"):
        OtherSite.page = form(scene.url, path, fields)
        with page.expect_response(f"{scene.url}{path}") as answer:
            page.goto(f"http://{host}:{other_port}/")
        assert answer.value.status in codes, path
    body = json.dumps({"ids": [int(number)], "reason": REASON})
    posted = {"method": "POST", "mode": "no-cors", "credentials": "include", "body": body}
    OtherSite.page = "<p>one that scripts</p>"
    page.goto(f"http://{host}:{other_port}/")
    for path in ("/api/retry", "/api/skip", "/api/raise-fence"):
        with page.expect_response(f"{scene.url}{path}") as answer:
            page.evaluate(
                "([url, options]) => fetch(url, options).catch(() => {})",
                [f"{scene.url}{path}", posted],
            )
        assert answer.value.status in codes, path
    page.goto(scene.url)
    expect(page.locator("#client")).to_have_text("olga")  # signed in still
    expect(page.locator("#leader-token")).to_have_text(token)
    expect(page.locator(f'tr[data-id="{number}"]')).to_be_visible()
    assert len(scene.journal()) == before


def test_a_page_of_another_site_cannot_show_this_one_in_a_frame(
    scene: Scene, visitors: Visitors, other_port: int
) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"])
    OtherSite.page = f'<iframe src="{scene.url}/help"></iframe>'
    page.goto(f"http://127.0.0.1:{other_port}/")
    page.wait_for_load_state("load")
    frame = page.frame_locator("iframe")
    refused = "chrome-error://chromewebdata/"
    while [each.url for each in page.frames[1:]] != [refused]:  # its address arrives after the page
        page.wait_for_timeout(50)
    expect(frame.locator("main")).to_have_count(0)


def test_whoever_is_signed_out_by_a_proxy_is_told_when_a_form_is_sent(
    scene: Scene, visitors: Visitors, other_port: int
) -> None:
    before = len(scene.journal())
    passed = f"proxy_set_header Host $http_host; proxy_pass {scene.url};"
    to_sign_in = f"if ($request_method = POST) {{ return 302 http://localhost:{other_port}/; }}"
    locations = f"location / {{ {passed} }} location = /do/raise-fence {{ {to_sign_in} {passed} }}"
    with NginxServer(locations) as nginx:
        page = visitors.signed_in(nginx.url, OPERATORS["olga"])
        page.goto(f"{nginx.url}/do/raise-fence")
        page.get_by_label("Reason").fill("too late")
        page.locator("#confirm").click()
        expect(page.locator("#connection")).to_contain_text("You are signed out.")
        expect(page.locator("#confirm")).to_be_enabled()
    assert len(scene.journal()) == before


def test_no_verb_is_done_by_get(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"])
    number = parked(page, scene, "read")
    before, token = len(scene.journal()), page.locator("#leader-token").inner_text()
    query = f"outbox=outbox&id={number}&ids={number}&cluster=1&reason=by+address&form=abc"
    for verb in VERBS:
        for method in ("GET", "HEAD"):
            assert page.request.fetch(f"{scene.url}/api/{verb}?{query}", method=method).status == 405
        page.request.get(f"{scene.url}/do/{verb}?{query}")
    assert page.request.get(f"{scene.url}/letter/reveal?{query}").status == 405
    assert len(scene.journal()) == before
    page.goto(scene.url)
    expect(page.locator("#leader-token")).to_have_text(token)
    expect(page.locator(f'tr[data-id="{number}"]')).to_be_visible()


def test_the_page_asks_nobody_else(scene: Scene, visitors: Visitors) -> None:
    page = visitors.open(http_credentials={"username": "olga", "password": OPERATORS["olga"]})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(scene.url)
    expect(page.locator("#live")).to_be_visible()
    assert all(each.startswith(f"{scene.url}/") for each in asked), asked
    assert not any(token in each for token in OPERATORS.values() for each in asked)
    assert page.context.cookies() == []


def test_whoever_has_no_token_sees_nothing(scene: Scene, visitors: Visitors) -> None:
    wrong = {"username": "olga", "password": "a token that nobody has"}
    page = visitors.open(http_credentials=wrong)
    answer = page.goto(scene.url)
    assert answer
    assert answer.status == 401
    expect(page.get_by_text("sign in with a token as the password")).to_be_visible()
    expect(page.locator("#live")).to_have_count(0)
