"""What an operator does on the page: what is told before, what is done once, and what is told after."""

import html
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from outbox_api import DriverError
from outbox_api.seams.parking import DeadLetterStatus
from outbox_core.operations import Verb
from outbox_core.status.clusters import ClusterState, Role

from .cli_runner import until
from .http_client import Answered
from .http_server import ALICE
from .page_site import AS_ALICE, Database, Operations, PageSite, configured, hasten, serving
from .page_states import letter, snapshot

AS_PERSON = {**AS_ALICE, "Accept": "text/html"}


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Operations:
    made = Operations([letter(7, "order-7"), letter(8, "order-8", value=b"\xff\x00secret")])
    made.found.append(letter(9, "order-9", status=DeadLetterStatus.SKIPPED))
    made.replace(monkeypatch)
    return made


@pytest.fixture
def site(operations: Operations, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageSite]:
    hasten(monkeypatch)
    database = Database()
    database.state = snapshot(clusters=[ClusterState(cluster=2, role=Role.OTHER)])
    with serving(configured(), database) as site:
        yield site


def fields_of(page: Answered) -> dict[str, str]:
    """Returns the hidden fields of a page's form."""
    assert page.code == 200, page.text
    found = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text)
    return {name: html.unescape(value) for name, value in found}


def follow(site: PageSite, done: Answered) -> str:
    """Returns the page that an answer leads to."""
    assert done.code == 303, done.text
    page = site.get(done.headers["location"], **AS_PERSON).text
    message = re.search(r'id="done"[^>]*>([^<]*)<', page)
    return message[1] if message else ""


def test_chosen_records_are_tried_again(site: PageSite, operations: Operations):
    asked = site.get("/do/retry?outbox=outbox&id=7&id=8&id=77", **AS_PERSON)
    assert "<title>Retry 2 records? · outbox · outbox</title>" in asked.text
    assert Verb.RETRY.effect() in html.unescape(asked.text)
    assert "Not parked any more, and left alone: 77." in asked.text
    assert re.findall(r'id="affected-(\d+)"', asked.text) == ["7", "8"]
    assert operations.noted == []
    operations.found = operations.found[1:]  # somebody is faster
    done = site.post("/do/retry", ALICE, reason=" the limit\nis raised ", **fields_of(asked))
    assert follow(site, done) == ("1 record tried again: 8. Not parked any more, and left alone: 7.")
    [noted] = operations.noted
    assert noted.action.operator == "alice"
    assert noted.action.via == "http"
    assert noted.action.reason == "the limit is raised"
    page = site.get("/", **AS_PERSON).text
    assert "letter-8" not in page
    assert "the limit is raised" in page


def test_a_form_that_is_sent_twice_acts_once(site: PageSite, operations: Operations):
    fields = fields_of(site.get("/do/raise-fence", **AS_PERSON))
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(site.post, "/do/raise-fence", ALICE, reason="x", **fields) for _ in range(8)]
        answers = [each.result() for each in sent]
    assert {each.headers["location"] for each in answers} == {answers[0].headers["location"]}
    assert "The fence is raised: the token is 4300000 now." in follow(site, answers[0])
    assert [each.action.verb for each in operations.noted] == ["raise-fence"]
    again = fields_of(site.get("/do/raise-fence", **AS_PERSON))
    site.post("/do/raise-fence", ALICE, reason="x", **again)
    assert len(operations.noted) == 2
    assert operations.seen == [4200017, 4200017]  # whom the operator has seen is fenced, and nobody else


def test_a_number_of_a_form_stands_for_one_deed(site: PageSite, operations: Operations):
    fields = fields_of(site.get("/do/retry?id=7", **AS_PERSON))
    site.post("/do/retry", ALICE, reason="x", **fields)
    refused = site.post("/do/skip", ALICE, reason="x", **fields | {"ids": "8"})
    assert refused.code == 409
    assert [each.action.verb for each in operations.noted] == ["retry"]


def test_what_came_of_it_is_told_to_whom_has_done_it(site: PageSite):
    fields = fields_of(site.get("/do/redrive?id=9", **AS_PERSON))
    done = site.post("/do/redrive", ALICE, reason="x", **fields)
    assert follow(site, done) == "1 record stashed again: 9."
    with_other_text = site.get("/outbox?name=outbox&done=You+are+hacked", **AS_PERSON).text
    assert "hacked" not in with_other_text


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        ("/do/retry", {"ids": "7"}, "say why"),
        ("/do/retry", {"ids": "7", "reason": "  "}, "say why"),
        ("/do/retry", {"ids": "7", "reason": "x" * 1001}, "1,000 are the most"),
        ("/do/retry", {"reason": "x"}, "no record is chosen"),
        ("/do/retry", {"ids": "7,x", "reason": "x"}, "no number"),
        ("/do/retry", {"ids": str(1 << 63), "reason": "x"}, "64 bits"),
        ("/do/retry", {"ids": "7", "reason": "x", "outbox": "other"}, "no such outbox"),
        ("/do/take-over", {"reason": "x"}, "name the cluster"),
        ("/do/pause", {"reason": "x", "lasts": "10m"}, "name the topic"),
        ("/do/pause", {"reason": "x", "lasts": "10m", "topic": ""}, "name the topic"),
        ("/do/pause", {"reason": "x", "topic": "orders"}, "say for how long"),
        ("/do/pause", {"reason": "x", "topic": "orders", "lasts": "own", "own": "soon"}, "say for how long"),
        ("/do/pause", {"reason": "x", "topic": "orders", "lasts": "500ms"}, "the shortest pause"),
        ("/do/resume", {"reason": "x"}, "name the topic"),
    ],
)
def test_a_form_that_is_not_right_does_nothing(
    site: PageSite, operations: Operations, path: str, fields: dict[str, str], said: str
):
    refused = site.post(path, ALICE, **fields)
    assert refused.code in {400, 404}
    assert said in html.unescape(refused.text)
    assert "<title>Not done" in refused.text
    assert operations.noted == []


def test_verbs_that_are_not_here(site: PageSite):
    assert site.get("/do/forget", **AS_PERSON).code == 404
    assert site.get("/do/nothing", **AS_PERSON).code == 404
    assert site.get("/letter/reveal", **AS_PERSON).code == 405


def test_nothing_to_do_offers_nothing(site: PageSite):
    for path, said in (("id=77", "No record is parked any more."), ("", "No record is chosen.")):
        page = site.get(f"/do/skip?{path}", **AS_PERSON).text
        assert said in page
        assert "<form" not in page.partition("<main")[2]


def test_a_takeover_begins_and_ends(site: PageSite, operations: Operations):
    asked = site.get("/do/take-over?cluster=2", **AS_PERSON)
    assert Verb.TAKE_OVER.effect(2) in html.unescape(asked.text)
    done = site.post("/do/take-over", ALICE, reason="x", **fields_of(asked))
    assert follow(site, done) == (
        "The records of cluster 2 are taken over at once from now on. The token is 5 now."
    )
    asked = site.get("/do/end-takeover?cluster=2", **AS_PERSON)
    done = site.post("/do/end-takeover", ALICE, reason="x", **fields_of(asked))
    assert follow(site, done) == "The takeover of cluster 2 has ended. The token is 6 now."
    assert operations.seen == [4_200_017, 4_200_017], "a form that comes late does nothing"
    refused = site.get("/do/take-over?cluster=3", **AS_PERSON)
    assert refused.code == 409
    assert "there is no cluster 3; the others are 2" in refused.text


def test_a_topic_is_chosen_paused_and_resumed(site: PageSite, operations: Operations):
    asked = site.get("/do/pause?outbox=outbox", **AS_PERSON)
    assert 'href="/do/pause?outbox=outbox&amp;topic=orders"' in asked.text
    asked = site.get("/do/pause?outbox=outbox&topic=orders", **AS_PERSON)
    assert "<title>Pause topic orders? · outbox · outbox</title>" in asked.text
    assert Verb.PAUSE.effect() in html.unescape(asked.text)
    assert "Records of it that wait now: 1,204." in asked.text
    assert operations.paused == []
    fields = fields_of(asked)
    paused = [site.post("/do/pause", ALICE, reason="ticket 17", lasts="10m", **fields) for _ in range(2)]
    assert follow(site, paused[1]).startswith("Topic orders is paused until 2026-11-23 ")
    assert operations.paused == [(Verb.PAUSE, "orders", 600.0)], "a form that is sent twice acts once"
    asked = site.get("/do/resume?outbox=outbox&topic=orders", **AS_PERSON)
    resumed = site.post("/do/resume", ALICE, reason="done", **fields_of(asked))
    assert follow(site, resumed) == "Topic orders is resumed. It was paused for 5m."
    assert operations.paused[1:] == [(Verb.RESUME, "orders", None)]


@pytest.mark.parametrize(
    ("lasts", "seconds"),
    [({"lasts": "resumed"}, None), ({"lasts": "own", "own": " 2h30m "}, 9000.0), ({"lasts": "1h"}, 3600.0)],
)
def test_the_whole_outbox_is_paused(
    site: PageSite, operations: Operations, lasts: dict[str, str], seconds: float | None
):
    asked = site.get("/do/pause?outbox=outbox&whole=1", **AS_PERSON)
    assert "Pause the whole outbox?" in asked.text
    assert "Records of it that wait now: 1,205." in asked.text
    done = follow(site, site.post("/do/pause", ALICE, reason="x", **lasts, **fields_of(asked)))
    assert done.startswith("The whole outbox is paused until ")
    assert operations.paused == [(Verb.PAUSE, "", seconds)]


def test_what_was_never_written_is_told_before_it_is_paused(site: PageSite):
    asked = site.get("/do/pause?outbox=outbox&topic=oders", **AS_PERSON).text
    assert "Records of it that wait now: 0." in asked
    assert "check the name" in asked


def test_what_fails_is_told_and_can_be_done_again(site: PageSite, operations: Operations):
    fields = fields_of(site.get("/do/retry?id=7", **AS_PERSON))
    operations.error = DriverError("Connection refused", retryable=True)
    failed = site.post("/do/retry", ALICE, reason="x", **fields)
    assert failed.code == 503
    assert "Connection refused" in failed.text
    operations.error = None
    assert "1 record tried again" in follow(site, site.post("/do/retry", ALICE, reason="x", **fields))


def test_values_are_hidden_until_an_operator_asks(site: PageSite, operations: Operations):
    assert "secret" not in site.get("/", **AS_PERSON).text
    page = site.get("/letter?outbox=outbox&id=8", **AS_PERSON)
    assert "secret" not in page.text
    assert "order-8" in page.text
    shown = site.post("/letter/reveal", ALICE, **fields_of(page))
    assert '<pre id="value">\ufffd\\x00secret</pre>' in shown.text
    assert '<pre id="value-hex">ff 00 73' in shown.text
    assert '<pre id="value-base64">/wBzZWNyZXQ=</pre>' in shown.text
    assert [(each.action.verb, each.action.operator) for each in operations.noted] == [("reveal", "alice")]
    assert site.get("/letter?id=99", **AS_PERSON).code == 404


def test_a_huge_record_makes_no_heavy_page(site: PageSite, operations: Operations):
    headers = tuple((f"name-{number}", b"\xff" * 5000) for number in range(10_000))
    operations.found = [letter(9, value=b"\xff" * 5_000_000, headers=headers)]
    shown = site.post("/letter/reveal", ALICE, id="9").text
    assert "5,000,000 bytes, of which the first are shown" in shown
    assert "The first 100 of 10,000 headers are shown" in shown
    assert len(shown) < 1_000_000
    operations.found = [letter(9, value="x" * 5_000_000)]
    assert len(site.post("/letter/reveal", ALICE, id="9").text) < 10_000


def test_rows_are_counted_only_if_that_is_asked_for(site: PageSite):
    assert "1,234" not in site.get("/letter?id=7", **AS_PERSON).text
    assert "1,234 in the outbox, this one included" in site.get("/letter?id=7&count=1", **AS_PERSON).text


def test_rows_are_counted_for_one_at_a_time(site: PageSite, operations: Operations):
    operations.counts.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.get, "/letter?id=7&count=1", **AS_PERSON)
        until(lambda: operations.counting == 1)
        assert site.get("/letter?id=8&count=1", **AS_PERSON).code == 409
        operations.counts.set()
        assert first.result().code == 200
