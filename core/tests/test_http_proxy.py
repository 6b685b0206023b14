"""Users whom a proxy names, and requests that pages of other sites have a browser make."""

import socket
from collections.abc import Iterator

import pytest
from outbox_console.access import Access, Role
from outbox_console.proxies import role_of
from outbox_core.settings.http import HttpSettings, ProxySettings
from starlette.requests import Request

from .http_client import Answered, Site
from .http_server import (
    ALICE,
    OPERATORS,
    ORIGIN,
    PROXY,
    READ,
    SAME,
    TRUSTED,
    USER,
    VERB,
    VIEWER,
    bearer,
    error,
    serving,
    settings_of,
    verb,
)


@pytest.fixture(scope="module")
def proxied() -> Iterator[Site]:
    with serving(settings_of(viewerTokens=[VIEWER], origin=ORIGIN, proxy=PROXY)) as site:
        yield site


def test_users_of_a_proxy(proxied: Site):
    def ask(user: str, groups: str = "") -> tuple[int, int]:
        named = [(USER, user), ("X-Forwarded-Groups", groups), ("Host", "outbox.example")]
        read = proxied.ask("GET", READ, *named, peer=TRUSTED)
        return read.code, verb(proxied, *named, SAME, peer=TRUSTED).code

    assert ask("carol") == (200, 400)
    assert ask("dave") == (200, 403)
    assert ask("dave", "staff, on-call") == (200, 400)
    assert ask("dave", "on-call-not") == (200, 403)
    assert ask("Carol") == (200, 403)
    assert ask("carol, dave") == (200, 403)
    assert ask("") == ask("  ") == (401, 401)
    assert ask("c" * 101) == (403, 403)
    blank = "\u00a0".encode().decode("latin-1")  # as a proxy sends it
    assert ask(f"carol{blank}") == ask(f"{blank}carol") == (403, 403), "no blank of HTTP: another name"
    assert ask("dave", f"on-call{blank}") == (200, 403)
    assert "dave may only read" in verb(proxied, (USER, "dave"), SAME, peer=TRUSTED).text


def test_people_are_refused_on_a_page_and_programs_in_json():
    proxy = {**PROXY, "signOut": "/oauth2/sign_out?rd=/&a=b"}
    sign_out = '<a href="/oauth2/sign_out?rd=/&amp;a=b">Sign out</a>'
    with serving(settings_of(origin=ORIGIN, path="/outbox", proxy=proxy)) as site:

        def ask(path: str, *headers: tuple[str, str], accept: str = "text/html") -> Answered:
            return site.ask("GET", f"/outbox{path}", ("Accept", accept), *headers, peer=TRUSTED)

        unnamed = ask("/")
        assert (unnamed.code, unnamed.headers["www-authenticate"]) == (401, "Bearer")
        assert f'<a href="{ORIGIN}/outbox/">Sign in at {ORIGIN}/outbox/</a>' in unnamed.text
        assert '<link rel="stylesheet" href="/outbox/static/page.css">' in unnamed.text
        for path, accept in (("/", "*/*"), ("/api/parked", "text/html")):
            told = f"the proxy has named no user in the header {USER} (http.proxy.userHeader)"
            assert error(ask(path, accept=accept)) == f"{told}; sign in at {ORIGIN}/outbox/"
        dave = (USER, f"<b>dave{'e' * 100}")
        refused = ask("/", dave)
        assert refused.code == 403
        assert f"what {USER} holds can be no user&#39;s name" in refused.text
        assert sign_out in refused.text
        assert USER in error(ask("/", dave, accept="application/json"))
        assert error(ask("/api/nothing")) == "there is no such address: /outbox/openapi.json lists all"
        missing = ask("/nothing", (USER, "carol"))
        assert missing.code == 404
        assert "there is no such address" in missing.text
        assert '<span id="client">carol</span>' in missing.text
        assert '<a id="logout" href="/oauth2/sign_out?rd=/&amp;a=b">Sign out</a>' in missing.text
        wrong = site.ask("POST", "/outbox/help", (USER, "carol"), body="", peer=TRUSTED)
        assert (wrong.code, sorted(wrong.headers["allow"].split(", "))) == (405, ["GET", "HEAD"])
        assert error(wrong) == "nothing was done: ask this address by GET or HEAD, not by POST"


def test_a_proxys_header_from_elsewhere_does_not_count(proxied: Site, caplog: pytest.LogCaptureFixture):
    refused = verb(proxied, (USER, "carol"), SAME)
    assert refused.code == 401
    assert f"{USER} does not count" in error(refused)
    assert f"sign in at {ORIGIN}" in error(refused)
    assert "from 127.0.0.1: X-Forwarded-User does not count" in caplog.text
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert verb(proxied, (USER, "carol"), SAME, (header, TRUSTED)).code == 401
        assert verb(proxied, (USER, "carol"), SAME, (header, f"for={TRUSTED}")).code == 401
    # It is as if the header was not there.
    assert proxied.ask("GET", READ, (USER, "carol"), bearer(VIEWER)).code == 200
    assert verb(proxied, (USER, "carol"), bearer(VIEWER)).code == 403


def test_a_proxys_header_is_there_once_and_spelled_as_configured(proxied: Site):
    twice = [(USER, "dave"), (USER, "carol")]
    assert proxied.ask("GET", READ, *twice, peer=TRUSTED).code == 400
    assert verb(proxied, *twice[::-1], SAME, peer=TRUSTED).code == 400
    groups = [("X-Forwarded-Groups", "staff"), ("X-Forwarded-Groups", "on-call")]
    assert verb(proxied, (USER, "dave"), *groups, SAME, peer=TRUSTED).code == 400
    assert proxied.ask("GET", READ, ("X_Forwarded_User", "carol"), peer=TRUSTED).code == 401
    assert verb(proxied, (USER, "dave"), ("x-forwarded-user", "carol"), SAME, peer=TRUSTED).code == 400


def test_only_names_of_the_server_itself_are_asked_for_where_a_proxy_is_believed(proxied: Site):
    # A page of another site can give its own name the address of a proxy's machine.
    for host, code in (("evil.example", 403), ("outbox.example", 200), ("127.0.0.1:1", 200), ("[::1]", 200)):
        assert proxied.ask("GET", READ, (USER, "dave"), ("Host", host), peer=TRUSTED).code == code


CROSS = [
    [],
    [("Sec-Fetch-Site", "cross-site")],
    [("Sec-Fetch-Site", "same-site")],
    [("Sec-Fetch-Site", "none")],
    [("Sec-Fetch-Site", "same-origin, cross-site")],
    [("Sec-Fetch-Site", "cross-site"), ("Origin", ORIGIN)],
    [("Origin", "null")],
    [("Origin", "")],
    [("Origin", "https://evil.example")],
    [("Origin", "https://outbox.example.evil.example")],
    [("Origin", "https://outbox.example@evil.example")],
    [("Origin", "https://outbox.example:444")],
    [("Origin", "http://outbox.example")],
    [("Origin", "http://outbox.example:443")],
    [("Origin", "outbox.example")],
    [("Referer", f"{ORIGIN}/")],
]
OWN = [[SAME], [("Origin", ORIGIN)], [("Origin", f"{ORIGIN}:443")]]


@pytest.mark.parametrize(
    ("headers", "code"), [*((each, 403) for each in CROSS), *((each, 400) for each in OWN)]
)
def test_a_page_of_another_site_changes_nothing(proxied: Site, headers: list[tuple[str, str]], code: int):
    named = [(USER, "carol"), ("Host", "outbox.example")]
    assert verb(proxied, *named, *headers, peer=TRUSTED).code == code


def test_a_program_with_a_token_needs_no_origin():
    with serving(settings_of(operatorTokens=OPERATORS)) as tokens:
        for headers in CROSS:
            assert verb(tokens, bearer(ALICE), *headers).code == 400


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.1.3.3", False),
        ("::ffff:10.1.3.3", False),
        ("fd00::1", True),
        ("fd00::1%eth0", True),
        ("fd01::1", False),
        ("::10.1.2.3", False),
        ("", False),
        ("outbox.example", False),
    ],
)
def test_addresses_of_a_proxy(peer: str, trusted: bool):
    proxy = ProxySettings(("10.1.2.0/24", "fd00::/16"), USER)
    access = Access(HttpSettings("127.0.0.1:0", ORIGIN, proxy=proxy))

    def role(user: str) -> Role | None:
        headers = [(b"host", b"outbox.example"), (USER.lower().encode(), user.encode())]
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
        client = access.client(Request({**scope, "client": (peer, 1)}))
        return None if client is None else client.role

    assert role("dave") == (Role.VIEWER if trusted else None)


def test_roles_of_users():
    everybody = ProxySettings(("10.1.2.3",), USER, operators=("*",))
    assert role_of(everybody, "dave", ()) is Role.OPERATOR
    assert role_of(ProxySettings(("10.1.2.3",), USER), "dave", ()) is Role.VIEWER
    assert Role.VIEWER < Role.OPERATOR


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: identity\r\nContent-Length: 4",
        "Transfer-Encoding: chunked, identity",
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length : 4",
        "Content-Length: +4",
    ],
)
@pytest.mark.parametrize("path", ["/livez", VERB])
def test_a_request_hides_no_other_one_in_its_body(proxied: Site, framing: str, path: str):
    hidden = f"GET {READ} HTTP/1.1\r\nHost: outbox.example\r\n{USER}: carol\r\n\r\n"
    outer = f"POST {path} HTTP/1.1\r\nHost: outbox.example\r\n{framing}\r\n\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxied.port), 30, (TRUSTED, 0)) as connection:
        connection.sendall((outer + hidden).encode())
        answered = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answered.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
    assert answered.count(b"HTTP/1.1 ") == 1
