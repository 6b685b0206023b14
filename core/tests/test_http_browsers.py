"""Browsers sign in with a token as the password: HTTP's own way, without cookies and sessions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox_console import clients as clients_module

from .http_client import Site
from .http_server import (
    ALICE,
    JSON,
    OPERATORS,
    ORIGIN,
    READ,
    SAME,
    VERB,
    VIEWER,
    basic,
    serving,
    settings_of,
    verb,
)

FORM = ("Content-Type", "application/x-www-form-urlencoded")
PAGE = ("Accept", "text/html,*/*;q=0.8")


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(settings_of(viewerTokens=[VIEWER], operatorTokens=OPERATORS)) as site:
        yield site


def test_a_browser_asks_for_a_token_and_sends_it_as_a_password(site: Site):
    asked = site.ask("GET", "/status", PAGE)
    assert asked.code == 401
    assert asked.headers["www-authenticate"].startswith('Basic realm="outbox')
    assert "sign in with a token as the password, under any name" in asked.text
    page = site.ask("GET", "/nothing", PAGE, basic(ALICE))
    assert 'id="client">alice<' in page.text, "whose token it is, not the name that was typed"
    assert "set-cookie" not in page.headers
    assert site.ask("GET", READ, basic(VIEWER)).code == 200
    assert verb(site, basic(VIEWER), SAME).code == 403
    assert verb(site, basic(ALICE), SAME).code == 400


def test_only_people_are_asked_by_their_browser(site: Site):
    for refused in (
        site.ask("GET", READ, ("Accept", "*/*")),
        site.ask("GET", "/api/parked", PAGE),
        site.ask("POST", VERB, PAGE, JSON, SAME, body="{}"),
    ):
        assert (refused.code, refused.headers["www-authenticate"]) == (401, "Bearer")
    refused = site.ask("POST", "/do/retry", PAGE, FORM, SAME, body="")
    assert refused.headers["www-authenticate"].startswith("Basic ")
    assert "nothing was done: sign in with a token" in refused.text
    proxy = {"addresses": ["10.1.2.3"], "userHeader": "X-U"}
    with serving(settings_of(origin=ORIGIN, proxy=proxy)) as other:
        refused = other.ask("GET", READ, PAGE)
        assert (refused.code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert f'<a href="{ORIGIN}/">Sign in at {ORIGIN}/</a>' in refused.text


def test_a_page_of_another_site_cannot_use_what_a_browser_remembers(site: Site):
    for cross in (
        [],
        [("Origin", "null")],
        [("Origin", "http://evil.example")],
        [("Sec-Fetch-Site", "same-site")],
    ):
        assert verb(site, basic(ALICE), *cross).code == 403
    assert verb(site, basic(ALICE), ("Origin", f"http://127.0.0.1:{site.port}")).code == 400
    assert verb(site, basic(ALICE), ("Origin", f"http://127.0.0.1:{site.port - 1}")).code == 403


@pytest.mark.parametrize(
    "given", ["Basic", "Basic ", "Basic %%%", "Basic /w==", f"Basic {ALICE}", "Basic YWxpY2U="]
)
def test_what_is_no_password_is_refused(site: Site, given: str):
    assert site.ask("GET", READ, ("Authorization", given)).code == 401


def test_wrong_tokens_are_refused_and_not_repeated(site: Site):
    for token in ("", "wrong", VIEWER[:-1], f"{VIEWER}x"):
        refused = site.ask("GET", "/", PAGE, basic(token))
        assert refused.code == 401
        assert not token or token not in refused.text


def test_a_form_is_bounded(site: Site):
    for body, code in ((b"reason=%ff", 400), (b"x=" * 40_000, 413), (b"x=&" * 3_000, 400)):
        assert site.ask("POST", "/do/retry", FORM, SAME, basic(ALICE), body=body).code == code
    assert site.ask("POST", "/do/retry", JSON, SAME, basic(ALICE), body="{}").code == 415


def test_a_replaced_token_counts_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clients_module, "FRESH_SECONDS", 0.0)
    file = tmp_path / "alice"
    file.write_text(ALICE)
    with serving(settings_of(viewerTokens=[VIEWER], operatorTokens={"alice": f"${{file:{file}}}"})) as site:
        assert site.ask("GET", READ, basic(ALICE)).code == 200
        file.write_text("another-token-of-alice")
        assert site.ask("GET", READ, basic(ALICE)).code == 401
        assert site.ask("GET", READ, basic("another-token-of-alice")).code == 200
        assert site.ask("GET", READ, basic(VIEWER)).code == 200
