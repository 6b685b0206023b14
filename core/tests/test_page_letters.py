"""What the page finds among dead letters, and what is done to all that were found."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from outbox_api.seams.parking import DeadLetter, DeadLetterStatus

from .http_client import Answered
from .http_server import ALICE, VIEWER
from .page_site import AS_ALICE, AS_VIEWER, Database, Operations, PageSite, configured, hasten, serving
from .page_states import HOSTILE, NOW, entry, letter
from .test_page_verbs import fields_of, follow

AS_PERSON = {**AS_ALICE, "Accept": "text/html"}


def made(number: int, key: str, topic: str = "orders", hours: float = 1, **parts: object) -> DeadLetter:
    found = letter(number, key, **parts)  # type: ignore[arg-type]  # as letter has them
    since = NOW - timedelta(hours=hours)
    return replace(
        found, record=found.record._replace(topic=topic), since=since, age=hours * 3600, attempts=number % 7
    )


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Operations:
    letters = [made(number, f"order-{number}", hours=number) for number in range(1, 231)]
    letters += [made(number, f"bill-{number}", "bills", reason="Unknown topic") for number in range(231, 234)]
    letters.append(made(240, "order-7", status=DeadLetterStatus.SKIPPED))
    operations = Operations(letters)
    operations.replace(monkeypatch)
    return operations


@pytest.fixture
def site(operations: Operations, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageSite]:
    hasten(monkeypatch)
    with serving(configured(), Database()) as site:
        yield site


def ids(page: Answered) -> list[int]:
    assert page.code == 200, page.text
    return [int(each) for each in re.findall(r'id="letter-(-?\d+)"', page.text)]


def total(page: Answered) -> str:
    found = re.search(r'id="total">([^<]*)<', page.text)
    assert found is not None
    return found[1]


def facets(page: Answered, name: str) -> list[str]:
    listed = re.search(rf'id="by-{name}".*?</ul>', page.text, re.DOTALL)
    return re.findall(r"<li>(.*?)</li>", re.sub(r"</?(?!/?li)[^>]*>", "", listed[0])) if listed else []


def test_each_view_has_an_address(site: PageSite):
    first = site.get("/letters?outbox=outbox", **AS_PERSON)
    assert (total(first), len(ids(first))) == ("233", 100)
    assert facets(first, "topic") == ["orders 230", "bills 3"]
    assert facets(first, "reason") == [
        "MSG_SIZE_TOO_LARGE: Broker: Message size too large 230",
        "Unknown topic 3",
    ]
    last = site.get("/letters?page=3", **AS_PERSON)
    assert ids(last) == [*range(201, 234)]
    assert ids(site.get("/letters?page=99", **AS_PERSON)) == ids(last)
    assert ids(site.get("/letters?sort=age", **AS_PERSON))[0] == 230
    assert ids(site.get("/letters?sort=attempts", **AS_PERSON))[:2] == [6, 13]
    assert ids(site.get("/letters?sort=key", **AS_PERSON))[:4] == [231, 232, 233, 1]
    bills = site.get("/letters?topic=bills&reason=UNKNOWN", **AS_PERSON)
    assert ids(bills) == [231, 232, 233]
    assert facets(bills, "topic") == ["any", "bills 3"], "those of other topics have other reasons"
    assert ids(site.get("/letters?topic=orders&older_than=228h", **AS_PERSON)) == [228, 229, 230]
    assert ids(site.get("/letters?topic=orders&younger_than=2h", **AS_PERSON)) == [1, 2]
    assert ids(site.get("/letters?status=skipped", **AS_PERSON)) == [240]
    assert 'id="none"' in site.get("/letters?topic=ord%25", **AS_PERSON).text, "nothing is a wildcard"


@pytest.mark.parametrize(
    "query", ["topik=orders", "sort=size", "status=gone", "older_than=soon", "page=x", "since=then"]
)
def test_what_is_not_understood_is_not_left_out(site: PageSite, query: str):
    assert site.get(f"/letters?{query}", **AS_PERSON).code == 400
    assert site.get(f"/do/retry?all=1&{query}", **AS_PERSON).code == (
        200 if query[:4] in {"sort", "page", "stat"} else 400
    )


def test_a_key_is_in_no_address(site: PageSite):
    for query in ("by=key&text=order-7", "key=order-7", "key_prefix=order", "by=empty"):
        assert site.get(f"/letters?{query}", **AS_PERSON).code == 400
        assert site.get(f"/do/retry?all=1&{query}", **AS_PERSON).code == 400
    found = site.post("/letters", VIEWER, by="key", text="order-7")
    assert ids(found) == [7]
    many = site.post("/letters", VIEWER, by="key_prefix", text="order-2", page="1")
    assert total(many) == "42"
    assert "order-2" not in "".join(re.findall(r'(?:href|action)="[^"]*"', many.text))
    led = site.post("/letters", VIEWER, by="key", text="", topic="bills", sort="age")
    assert led.code == 303
    assert led.headers["location"] == "/letters?topic=bills&sort=age"
    assert site.post("/letters", VIEWER, text="order-7").code == 400, "how it is to be compared is not known"


def test_keys_of_every_kind_are_found(site: PageSite, operations: Operations):
    long = "ä" * 32_000
    keys = ["", HOSTILE, "100%", "_", "😀 \u0301", long]
    operations.found = [made(number, key[:1001]) for number, key in enumerate(keys, 1)]
    assert ids(site.post("/letters", VIEWER, by="empty")) == [1]
    for number, key in enumerate(keys[1:5], 2):
        page = site.post("/letters", VIEWER, by="key", text=key)
        assert ids(page) == [number]
        assert "<script>alert" not in page.text
    assert ids(site.post("/letters", VIEWER, by="key_prefix", text=long[:900])) == [6]
    assert site.post("/letters", VIEWER, by="key_prefix", text=long[:1500]).code == 400


def test_what_is_counted_leads_to_what_it_counts(site: PageSite, operations: Operations):
    reasons = ["half \udc80 of one", HOSTILE, f"{HOSTILE}; twice", "4711", "", "é: 12 %"]
    operations.found = [
        made(n, "k", topic, reason=why) for n, why in enumerate(reasons, 1) for topic in ("x\udfff", HOSTILE)
    ]
    operations.found = [
        replace(each, record=each.record._replace(id=n)) for n, each in enumerate(operations.found)
    ]
    page = site.get("/letters", **AS_PERSON)
    assert "<script>alert" not in page.text
    listed = re.search(r'id="by-reason".*?</ul>', page.text, re.DOTALL)
    assert listed is not None
    links = re.findall(r'<a href="([^"]*)">.*?</a> (\d+)', listed[0])
    assert len(links) == 3
    for address, count in links:
        found = site.get(html.unescape(address), **AS_PERSON)
        if "reason=" in address:
            assert total(found) == count
        assert "<script>alert" not in found.text


def test_a_verb_is_done_to_all_that_match_and_to_none_that_come_later(site: PageSite, operations: Operations):
    asked = site.post("/letters/do/retry", ALICE, outbox="outbox", topic="orders", older_than="3h", page="2")
    assert "Retry 228 records?" in asked.text
    assert "topic orders, older than 3h" in asked.text
    assert len(re.findall(r'id="affected-\d', asked.text)) == 100
    assert operations.noted == []
    fields = fields_of(asked)
    late = [replace(made(number, "late"), since=NOW + timedelta(hours=1), age=90_000) for number in (0, 300)]
    operations.found += late
    operations.found = [each for each in operations.found if each.record.id not in {3, 4}]
    done = site.post("/do/retry", ALICE, reason="x", **fields)
    said = follow(site, done)
    assert said.startswith("226 records tried again: 5, 6")
    assert said.endswith("2 of those that were counted were not parked any more.")
    assert [each.record.id for each in operations.found] == [1, 2, 231, 232, 233, 240, 0, 300]
    assert operations.noted[0].action.subject.startswith("topic orders, since ")
    site.post("/do/retry", ALICE, reason="x", **fields)
    assert len(operations.noted) == 1, "it was sent twice"


def test_nothing_is_done_if_more_match_than_were_counted(site: PageSite, operations: Operations):
    fields = fields_of(site.get("/do/skip?all=1&topic=bills", **AS_PERSON))
    operations.found.append(made(250, "as-old", "bills"))
    refused = site.post("/do/skip", ALICE, reason="x", **fields)
    assert refused.code == 409
    assert "nothing was done: 4 records match by now, instead of 3" in html.unescape(refused.text)
    assert operations.noted == []


def test_conditions_that_were_tampered_with_do_nothing(site: PageSite, operations: Operations):
    fields = fields_of(site.get("/do/retry?all=1&topic=bills", **AS_PERSON))
    for where in ("", "[]", "{", '{"topik": "bills"}', '{"since": "x"}', '["topic"]', '"x"'):
        assert site.post("/do/retry", ALICE, reason="x", **fields | {"where": where}).code == 400, where
    more = json.dumps(json.loads(fields["where"]) | {"topic": "orders"})
    assert site.post("/do/retry", ALICE, reason="x", **fields | {"where": more}).code in {303, 409}
    assert site.post("/letters/do/retry", VIEWER, topic="bills").code == 403
    assert site.post("/letters/do/raise-fence", ALICE).code == 404


def test_all_may_be_nothing(site: PageSite, operations: Operations):
    asked = site.post("/letters/do/retry", ALICE, topic="nothing")
    assert "Retry: nothing to do" in asked.text
    assert "<form" not in asked.text.partition("<main")[2]


def test_viewers_see_no_verbs(site: PageSite):
    assert "-matching" not in site.get("/letters", **AS_VIEWER, Accept="text/html").text


def test_the_journal_leads_further_back_and_is_filtered(site: PageSite, operations: Operations):
    operations.noted = [entry(f"<b>{number}", outcome=f"{number} done") for number in range(250)]
    first = site.get("/journal", **AS_PERSON)
    assert len(re.findall(r'id="entry-', first.text)) == 100
    address = re.search(r'id="more"><a href="([^"]*)"', first.text)
    assert address is not None
    second = site.get(html.unescape(address[1]), **AS_PERSON)
    assert "100 done" in second.text
    assert ">99 done" not in second.text
    assert "<b>" not in second.text.partition("<table")[2]
    assert "There is no such entry." in site.get("/journal?verb=skip", **AS_PERSON).text
    assert "5 done" in site.get("/journal?verb=retry&since=2h", **AS_PERSON).text
    for wrong in ("since=soon", "after=x", "until=1"):
        assert site.get(f"/journal?{wrong}", **AS_PERSON).code == 400
