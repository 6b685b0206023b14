"""Browsers sign in with a token: sessions, their cookies, where they end, and who slows guesses down."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from outbox_console import clients as clients_module
from outbox_console import login as login_module
from outbox_console.clients import Sessions, digest
from outbox_console.login import RateLimit, local

from .http_client import Answered, Site
from .http_server import ALICE, OPERATORS, ORIGIN, VIEWER, serving, settings_of

READ, VERB = "/openapi.json", "/api/retry"
FORM = ("Content-Type", "application/x-www-form-urlencoded")
JSON = ("Content-Type", "application/json")
SAME = ("Sec-Fetch-Site", "same-origin")
PAGE = ("Accept", "text/html,*/*;q=0.8")


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(settings_of(viewerTokens=[VIEWER], operatorTokens=OPERATORS)) as site:
        yield site


def sign_in(site: Site, token: str, *headers: tuple[str, str], then: str = "/") -> Answered:
    body = urlencode({"token": token, "next": then})
    return site.ask("POST", "/login", FORM, *(headers or [SAME]), body=body)


def cookie_of(answered: Answered) -> tuple[str, str]:
    assert answered.code == 303, answered
    return ("Cookie", answered.headers["set-cookie"].partition(";")[0])


def test_a_browser_signs_in_and_out(site: Site):
    assert site.ask("GET", READ, PAGE).code == 303
    page = site.ask("GET", "/login?next=/outbox%3Fname%3Da", PAGE)
    assert page.code == 200
    assert 'name="next" value="/outbox?name=a"' in page.text
    answered = sign_in(site, f" {ALICE} ", then="/outbox?name=a")
    assert answered.headers["location"] == "/outbox?name=a"
    cookie = cookie_of(answered)
    assert ALICE not in cookie[1]
    assert site.ask("GET", READ, cookie).code == 200
    assert site.ask("POST", VERB, cookie, JSON, SAME, body="{}").code == 400
    assert site.ask("POST", "/logout", cookie, ("Sec-Fetch-Site", "cross-site")).code == 403
    assert site.ask("GET", READ, cookie).code == 200
    out = site.ask("POST", "/logout", cookie, SAME)
    assert (out.code, out.headers["location"]) == (303, "/login")
    assert "outbox-" in out.headers["set-cookie"]
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert site.ask("GET", READ, cookie).code == 401


def test_no_cookie_is_unquoted(site: Site, monkeypatch: pytest.MonkeyPatch):
    # Python before 3.11.10 takes seconds for one of 62 KB, and the whole server with it (CVE-2024-7592).
    unquoted: list[str] = []
    monkeypatch.setattr("http.cookies._unquote", unquoted.append)
    other = 'x="' + "\\a" * 31_000 + '"'
    assert site.ask("GET", READ, ("Cookie", other)).code == 401
    assert site.ask("POST", "/logout", ("Cookie", other), SAME).code == 303
    own = cookie_of(sign_in(site, ALICE, SAME, ("Cookie", other)))
    assert site.ask("GET", READ, ("Cookie", f"{other}; {own[1]}")).code == 200
    assert unquoted == []


def test_only_people_are_sent_to_sign_in(site: Site):
    sent = site.ask("GET", "/status?a=b&c=%26", PAGE)
    assert (sent.code, sent.headers["location"]) == (303, "/login?next=%2Fstatus%3Fa%3Db%26c%3D%2526")
    assert site.ask("GET", READ, ("Accept", "*/*")).code == 401
    refused = site.ask("POST", "/do/retry", PAGE, FORM, SAME, body="")
    assert (refused.code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "nothing was done: sign in at /login" in refused.text
    assert site.ask("POST", VERB, PAGE, JSON, SAME, body="{}").code == 401
    assert site.ask("GET", "/api/parked", PAGE).code == 401
    with serving(settings_of(origin=ORIGIN, proxy={"addresses": ["10.1.2.3"], "userHeader": "X-U"})) as other:
        refused = other.ask("GET", READ, PAGE)
        assert (refused.code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert f'<a href="{ORIGIN}/">Sign in at {ORIGIN}/</a>' in refused.text
        assert "Nobody signs in here with a token" in other.ask("GET", "/login", PAGE).text
        assert sign_in(other, "").code == sign_in(other, ALICE).code == 403


def test_a_page_of_another_site_cannot_use_a_session(site: Site):
    cookie = cookie_of(sign_in(site, ALICE))
    for cross in (
        [],
        [("Origin", "null")],
        [("Origin", "http://evil.example")],
        [("Sec-Fetch-Site", "same-site")],
    ):
        assert site.ask("POST", VERB, cookie, JSON, *cross, body="{}").code == 403
    own = ("Origin", f"http://127.0.0.1:{site.port}")
    assert site.ask("POST", VERB, cookie, JSON, own, body="{}").code == 400
    other_port = ("Origin", f"http://127.0.0.1:{site.port - 1}")
    assert site.ask("POST", VERB, cookie, JSON, other_port, body="{}").code == 403


def test_a_page_of_another_site_cannot_sign_somebody_in(site: Site):
    for cross in (("Sec-Fetch-Site", "cross-site"), ("Origin", "null"), ("Referer", "http://127.0.0.1/")):
        refused = sign_in(site, ALICE, cross)
        assert refused.code == 403
        assert "set-cookie" not in refused.headers
    assert site.ask("GET", "/logout").code == 405
    assert site.ask("POST", "/login", JSON, SAME, body='{"token": ""}').code == 415


def test_wrong_tokens(site: Site):
    for token in ("", "wrong", VIEWER[:-1], f"{VIEWER}x"):
        refused = sign_in(site, token)
        assert refused.code == 403
        assert "set-cookie" not in refused.headers
        assert "Invalid token" in refused.text
        assert not token or f'"{token}"' not in refused.text
    assert site.ask("POST", "/login", FORM, SAME, body=b"token=%ff").code == 400
    assert site.ask("POST", "/login", FORM, SAME, body=b"x=" * 40_000).code == 413
    assert site.ask("POST", "/login", FORM, SAME, body=b"x=&" * 3_000).code == 400


def test_cookies_cannot_be_read_or_sent_by_others(site: Site):
    cookie = sign_in(site, ALICE).headers["set-cookie"]
    name, *attributes = cookie.split("; ")
    assert name.startswith(f"outbox-{site.port}=")
    assert {each.lower() for each in attributes} == {"httponly", "path=/", "samesite=strict"}
    with serving(settings_of(viewerTokens=[VIEWER], origin=ORIGIN)) as secure:
        answered = sign_in(secure, VIEWER, ("Origin", ORIGIN))
        cookie = answered.headers["set-cookie"]
        assert cookie.startswith(f"__Host-outbox-{secure.port}=")
        assert "; Secure" in cookie
        assert secure.ask("GET", READ, cookie_of(answered)).code == 200
        plain = cookie_of(answered)[1].removeprefix("__Host-")
        assert secure.ask("GET", READ, ("Cookie", plain)).code == 401


def test_a_new_session_ends_the_one_before(site: Site):
    first = cookie_of(sign_in(site, VIEWER))
    second = cookie_of(sign_in(site, ALICE, SAME, first))
    assert first != second
    ambiguous = ("Cookie", f"{second[1]}; {second[1].partition('=')[0]}=other")
    assert site.ask("GET", READ, ambiguous).code == 401
    assert site.ask("GET", READ, first).code == 401
    assert site.ask("GET", READ, second).code == 200


def test_a_session_ends_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clients_module, "FRESH_SECONDS", 0.0)
    file = tmp_path / "alice"
    file.write_text(ALICE)
    with serving(settings_of(viewerTokens=[VIEWER], operatorTokens={"alice": f"${{file:{file}}}"})) as site:
        cookie, other = cookie_of(sign_in(site, ALICE)), cookie_of(sign_in(site, VIEWER))
        file.write_text("another-token-of-alice")
        assert site.ask("GET", READ, cookie).code == 401
        assert site.ask("GET", READ, other).code == 200
        file.write_text(ALICE)  # what has ended does not begin again
        assert site.ask("GET", READ, cookie).code == 401


def test_a_session_ends_in_any_case_and_nobody_ends_those_of_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clients_module, "MOST_OF_A_TOKEN", 2)
    now = 0.0
    sessions = Sessions(lambda: now)
    operators = sessions.begin(digest(ALICE))
    for _ in range(5):
        sessions.begin(digest(VIEWER))
    while now < clients_module.LONGEST_SECONDS:
        assert sessions.token(operators) == digest(ALICE)
        now += clients_module.IDLE_SECONDS / 2
    assert sessions.token(operators) is None


def test_sessions_end_and_are_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clients_module, "MOST_OF_A_TOKEN", 2)
    now, token = 0.0, digest(ALICE)
    sessions = Sessions(lambda: now)
    first, second = sessions.begin(token), sessions.begin(token)
    now = clients_module.IDLE_SECONDS - 1
    assert sessions.token(first) == token
    third = sessions.begin(token)
    assert sessions.token(second) is None  # it was idle for longest
    now += clients_module.IDLE_SECONDS - 1
    assert sessions.token(first) == token
    now += 1
    assert sessions.token(third) is None
    assert sessions.token("") is None
    assert first not in repr(vars(sessions))


def test_guesses_are_slowed_down_all_together(monkeypatch: pytest.MonkeyPatch):
    attempts = RateLimit()
    for second in range(login_module.FEW):
        assert attempts.delay(second) == 0
        attempts.failed(second)
    assert attempts.delay(10) == login_module.DELAY_SECONDS
    assert attempts.delay(61) == 0
    monkeypatch.setattr(login_module, "MOST_WAITING", 1)
    assert (attempts.begin_waiting(), attempts.begin_waiting()) == (True, False)
    attempts.end_waiting()
    assert attempts.begin_waiting()


def test_many_guesses_are_refused_and_the_right_token_still_counts(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    for _ in range(login_module.FEW):
        assert sign_in(site, "wrong").code == 403
    monkeypatch.setattr(login_module, "MOST_WAITING", 0)
    refused = sign_in(site, "wrong")
    assert (refused.code, refused.headers["retry-after"]) == (429, "60")
    assert site.ask("GET", READ, ("Authorization", f"Bearer {ALICE}")).code == 200
    assert sign_in(site, ALICE).code == 303


@pytest.mark.parametrize(
    "then",
    [
        "",
        "outbox",
        "//evil.example",
        "//[",
        "/\\evil.example",
        "/\t/evil.example",
        "/%0d%0aSet-Cookie: a=b",
        "https://evil.example",
        "javascript:alert(1)",
        "/ü",
        " /outbox",
    ],
)
def test_signing_in_leads_to_no_other_site(then: str, site: Site):
    assert local(then) == "/"
    assert sign_in(site, ALICE, then=then).headers["location"] == "/"


def test_signing_in_leads_back():
    for then in ("/", "/outbox?name=a/b&c=%26#x", "/do/retry?id=1&id=2"):
        assert local(then) == then


@pytest.mark.parametrize("path", ["/ops", "/ops/outbox.v2/"])
def test_cookies_of_servers_below_a_path_are_for_them_alone(path: str):
    below = path.rstrip("/")
    with serving(settings_of(operatorTokens=OPERATORS, origin=ORIGIN, path=path)) as site:
        body = urlencode({"token": ALICE, "next": f"{below}/status"})
        answered = site.ask("POST", f"{below}/login", FORM, SAME, body=body)
        assert answered.headers["location"] == f"{below}/status"
        name, *attributes = answered.headers["set-cookie"].split("; ")
        assert name.startswith(f"__Secure-outbox-{site.port}{below.replace('/', '-')}=")
        assert {"HttpOnly", f"Path={below}", "SameSite=strict", "Secure"} == set(attributes)
        assert site.ask("GET", f"{below}{READ}", cookie_of(answered)).code == 200
