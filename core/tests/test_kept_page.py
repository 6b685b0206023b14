"""The view of kept records: search, values, replays and erasures, on real databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from outbox_api import Record, Stasher
from outbox_core import operations
from outbox_core.operations.erasing import digest
from outbox_core.settings import HarvestSettings, Settings
from psycopg.conninfo import make_conninfo

from .cli_runner import until
from .http_client import Answered
from .http_server import ALICE, VIEWER, serving
from .kept_site import DATABASES, keeping, keeping_for
from .page_site import AS_ALICE, AS_VIEWER, PageSite
from .test_cli_replay import deliver, stash, waiting
from .test_page_verbs import fields_of, follow

AS_PERSON = {**AS_ALICE, "Accept": "text/html"}


@pytest.fixture(params=DATABASES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return keeping_for(request, tmp_path)


@pytest.fixture
def box(settings: Settings) -> HarvestSettings:
    return settings.harvest


@pytest.fixture
def site(settings: Settings) -> Iterator[PageSite]:
    with serving(settings) as server:
        yield PageSite(server.port)


def positions(page: Answered) -> list[str]:
    assert page.code == 200, page.text
    return re.findall(r'<tr role="row" data-position="(\d+)"', page.text)


def test_what_is_kept_is_seen_by_day_and_found(site: PageSite, box: HarvestSettings):
    assert "Nothing is kept." in site.get("/kept", **AS_VIEWER).text
    assert 'href="/kept?outbox=outbox"' in site.get("/outbox?name=outbox", **AS_VIEWER).text
    stash(box, 240)
    deliver(box)
    until(lambda: '<td class="number">240</td>' in site.get("/kept?outbox=outbox", **AS_VIEWER).text)
    found = site.post("/kept", VIEWER, key="k1", topics="order* other", since="1h")
    assert len(positions(found)) == 80
    assert "secret" not in found.text
    first = site.post("/kept", VIEWER, where="id > 0\nposition > 0\n")
    more = site.post("/kept", VIEWER, **re_sent(first))
    assert (len(positions(first)), len(positions(more))) == (100, 100)
    assert not set(positions(first)) & set(positions(more))
    assert "No such record is kept." in site.post("/kept", VIEWER, until="1h").text
    wrong = site.post("/kept", VIEWER, since="yesterday")
    assert (wrong.code, "expected a time" in wrong.text) == (400, True)


def re_sent(page: Answered) -> dict[str, str]:
    """Returns the hidden fields of the form for the next records."""
    hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text)
    return {name: unescape(value) for name, value in hidden}


def test_values_are_hidden_until_an_operator_asks(site: PageSite, box: HarvestSettings):
    stash(box, 1)
    deliver(box)
    [position] = positions(site.post("/kept", ALICE, key="k0"))
    path = f"/kept/record?position={position}"
    assert "secret" not in site.get(path, **AS_ALICE).text
    assert "only operators may see them" in site.get(path, **AS_VIEWER).text
    assert site.post("/kept/reveal", VIEWER, position=position).code == 403
    assert operations.entries(box) == []
    shown = site.post("/kept/reveal", ALICE, position=position).text
    assert '<pre id="value">secret 0</pre>' in shown
    assert '<th scope="row">seq</th>' in shown
    [noted] = operations.entries(box)
    assert (noted.action.operator, noted.action.verb) == ("alice", "reveal")
    assert site.get("/kept/record?position=4711", **AS_PERSON).code == 409
    assert site.get("/kept/record?position=x", **AS_PERSON).code == 400


def test_a_replay_is_told_confirmed_and_watched(site: PageSite, box: HarvestSettings):
    stash(box, 1_200)
    first = deliver(box)
    fields = {"topics": "orders", "since": "1h", "where": "id > 0", "name": "x"}
    assert site.post("/kept/replay", VIEWER, **fields).code == 403
    asked = site.post("/kept/replay", ALICE, **fields)
    assert "<h1>Replay 1,200 records?</h1>" in asked.text
    assert "consumers see old states of a key again" in asked.text
    assert "of 3 keys" in asked.text
    assert (waiting(box), operations.entries(box)) == (0, [])
    assert "say why" in site.post("/do/replay", ALICE, **fields_of(asked)).text
    for _ in range(2):  # a form that is sent twice acts once
        done = site.post("/do/replay", ALICE, reason="an incident", **fields_of(asked))
        assert follow(site, done) == "The replay x has begun: 1,200 records to stash."
    until(lambda: 'data-state="ended"' in site.get("/kept/live", **AS_VIEWER).text)
    assert "1,200 of 1,200 records stashed" in site.get("/kept/live", **AS_VIEWER).text
    assert deliver(box) == first
    [noted] = operations.entries(box)
    assert (noted.action.verb, noted.action.reason) == ("replay", "an incident")
    assert noted.action.subject == "x: topic orders, since 1h, id > 0"
    again = site.post("/kept/replay", ALICE, **fields)
    assert (again.code, "ended at" in again.text) == (409, True)
    nothing = site.post("/kept/replay", ALICE, **{**fields, "name": "y", "topics": "other"})
    assert "Replay: nothing to do" in nothing.text
    for wrong in ({"name": ""}, {"to": "no topic"}, {"rate": "0"}, {"rate": "x"}, {"where": "id ~ 3"}):
        assert site.post("/kept/replay", ALICE, **{**fields, **wrong}).code == 400


def test_a_replay_is_given_up(site: PageSite, box: HarvestSettings):
    stash(box, 1_200)
    deliver(box)
    asked = site.post("/kept/replay", ALICE, name="x", rate="20")  # it lasts a minute
    site.post("/do/replay", ALICE, reason="an incident", **fields_of(asked))
    until(lambda: 'data-state="runs here"' in site.get("/kept/live", **AS_ALICE).text)
    other = site.post("/kept/replay", ALICE, name="y")
    refused = site.post("/do/replay", ALICE, reason="another", **fields_of(other))
    assert (refused.code, "this process does the replay" in refused.text) == (409, True)
    assert "give-up" not in site.get("/kept/live", **AS_VIEWER).text
    [link] = re.findall(r'href="(/do/give-up[^"]*)"', site.get("/kept/live", **AS_ALICE).text)
    asked = site.get(unescape(link), **AS_ALICE)
    assert "its name cannot be used again" in asked.text
    done = follow(site, site.post("/do/give-up", ALICE, reason="wrong topic", **fields_of(asked)))
    assert re.fullmatch(r"The replay x is given up: \d+ of 1,200 records stashed\.", done), done
    until(lambda: 'data-state="ended"' in site.get("/kept/live", **AS_ALICE).text)
    assert "given up: " in site.get("/kept/live", **AS_ALICE).text
    again = site.get(unescape(link), **AS_ALICE)
    assert site.post("/do/give-up", ALICE, reason="x", **fields_of(again)).code == 409


def test_a_key_is_forgotten_once_it_is_typed_again(site: PageSite, box: HarvestSettings):
    stash(box, 9)
    deliver(box)
    stash(box, 3)
    assert site.post("/kept/erase", VIEWER, key="k1").code == 403
    assert site.post("/kept/erase", ALICE, key="").code == 400
    assert site.post("/kept/erase", ALICE, key="k1", tombstone="no topic").code == 400
    asked = site.post("/kept/erase", ALICE, key="k1", tombstone="orders")
    assert "1 record of it wait in the outbox" in asked.text
    wrong = site.post("/do/erase", ALICE, again="k2", reason="x", **fields_of(asked))
    assert (wrong.code, "what was typed is not the key" in wrong.text) == (400, True)
    assert operations.entries(box) == []
    done = site.post("/do/erase", ALICE, again="k1", reason="request 17", **fields_of(asked))
    assert "k1" not in done.headers["location"]
    said = follow(site, done)
    assert f"Erased key {digest('k1')}: 3 kept records, 0 dead letters" in said
    assert "A tombstone goes to topic orders" in said
    assert positions(site.post("/kept", VIEWER, key="k1")) == []
    assert len(positions(site.post("/kept", VIEWER, topics="*"))) == 6
    [noted] = operations.entries(box)
    assert (noted.action.verb, noted.action.reason) == ("erase", "request 17")


def test_what_others_have_written_is_escaped(site: PageSite, box: HarvestSettings):
    key, long = "<script>alert(1)</script>\x00\u202e\n".replace("\x00", "\x01"), "k" * 65_536
    with closing(box.dialect.create().stash_connection()) as connection:
        headers = (("<b>", "<i>"),)
        records = [Record("orders", each, "<img src=x>\x1b[31m", headers) for each in (key, long)]
        Stasher(box.outbox, box.dialect.driver).stash_many(connection, records)
        connection.commit()
    deliver(box)
    found = site.post("/kept", ALICE, topics="*")
    shown = [site.post("/kept/reveal", ALICE, position=each).text for each in positions(found)]
    for page in (found.text, *shown):
        assert len(page) < 20_000
        for raw in ("<script>alert", "\x01", "\u202e", "<img", "\x1b", "<b>&", "<i>"):
            assert raw not in page
    assert r"&lt;script&gt;alert(1)&lt;/script&gt;\x01\u202e\n" in found.text
    assert "more than 1,000 characters" in found.text
    asked = site.post("/kept/erase", ALICE, key="<script>")
    assert "<script>" not in asked.text.partition("<main")[2]


def test_where_nothing_is_kept_the_view_says_how(site: PageSite, box: HarvestSettings):
    with closing(box.dialect.create().stash_connection()) as connection:
        connection.cursor().execute("DROP TABLE outbox_kept")
        connection.commit()
    until(lambda: "there is no table of kept records" in site.get("/kept", **AS_ALICE).text)
    page = site.get("/kept", **AS_ALICE)
    assert (page.code, "run &#39;outbox init&#39;" in page.text) == (200, True)
    assert site.post("/kept", ALICE, key="k").code == 502
    assert site.get("/outbox?name=outbox", **AS_ALICE).code == 200


def test_the_trouble_of_one_outbox_hides_no_other(tmp_path: Path):
    well = keeping("sqlite", str(tmp_path / "outbox.db"))
    stash(well.harvest, 3)
    deliver(well.harvest)
    away = keeping("sqlite", str(tmp_path / "no folder" / "outbox.db"), create=False)
    both = [replace(each.harvest, label=label) for each, label in ((away, "away"), (well, "well"))]
    with serving(replace(well, outboxes=tuple(both))) as server:
        site = PageSite(server.port)
        until(lambda: "Cannot be read: " in site.get("/kept?outbox=away", **AS_ALICE).text)
        assert site.post("/kept", ALICE, outbox="away", key="k0").code in {502, 503}
        assert site.post("/do/replay", ALICE, outbox="away", name="x", reason="x").code in {502, 503}
        assert len(positions(site.post("/kept", ALICE, outbox="well", topics="*"))) == 3
        asked = site.post("/kept/replay", ALICE, outbox="well", name="x")
        done = site.post("/do/replay", ALICE, reason="x", **fields_of(asked))
        assert follow(site, done) == "The replay x has begun: 3 records to stash."
        until(lambda: 'data-state="ended"' in site.get("/kept/live?outbox=well", **AS_ALICE).text)
    assert waiting(both[1]) == 3


def test_a_user_without_rights_is_told_which(postgres_dsn: str):
    box, user = keeping("postgres", postgres_dsn).harvest, f"looks_{uuid4().hex[:8]}"
    stash(box, 1)
    deliver(box)
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {user} LOGIN PASSWORD 's3cret'".encode())
        try:
            admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}".encode())
            admin.execute(f"REVOKE SELECT ON outbox_kept FROM {user}".encode())
            source = make_conninfo(postgres_dsn, user=user, password="s3cret")
            with serving(keeping("postgres", source, create=False)) as server:
                site, grant = PageSite(server.port), "GRANT SELECT ON"
                until(lambda: grant in unescape(site.get("/kept", **AS_ALICE).text))
                forms = {"kept": {"key": "k0"}, "kept/replay": {"name": "x"}, "kept/erase": {"key": "k0"}}
                for path, form in forms.items():
                    refused = site.post(f"/{path}", ALICE, **form)
                    shown = unescape(refused.text)
                    assert refused.code == 502
                    assert grant in shown or "lacks the privileges" in shown, shown
                    assert "s3cret" not in shown
        finally:
            admin.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())
