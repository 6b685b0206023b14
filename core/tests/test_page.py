"""The operator's page: what it shows, to whom, and what it makes of hostile and of missing data."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from outbox_api import DriverError, Parked
from outbox_api.seams.parking import DeadLetterStatus
from outbox_console.page import dead_letters as page_letters
from outbox_core.monitoring import statuses
from outbox_core.settings import Settings
from outbox_core.status.clusters import ClusterState, Role
from outbox_core.status.health import Code
from outbox_core.status.history import History

from .cli_runner import until
from .http_client import Answered
from .http_server import ALICE, VIEWER
from .page_site import AS_ALICE, AS_VIEWER, Database, Operations, PageSite, configured, serving
from .page_states import HOSTILE, entry, lane, letter, pause, snapshot, takeover

ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\x1b[31m&#34;&#39;&amp;"
AWAY = DriverError("Connection refused", retryable=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a page wait for its first look as long as a busy machine needs; a database in memory answers."""
    monkeypatch.setattr(statuses, "PATIENCE", 60.0)


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Operations:
    made = Operations()
    made.replace(monkeypatch)
    return made


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made.answers.set()


@pytest.fixture
def site(database: Database, operations: Operations) -> Iterator[PageSite]:
    with serving(configured(), database) as site:
        yield site


def test_it_says_that_all_is_well_and_who_leads(site: PageSite):
    text = site.get("/", **AS_VIEWER).text
    until(lambda: site.get("/", **AS_VIEWER).text == site.get("/outbox?name=outbox", **AS_VIEWER).text)
    assert "<title>All is well · outbox · outbox</title>" in text
    assert 'aria-live="polite">All is well.<' in text
    assert '<html lang="en">' in text
    assert "harvester-a" in text
    assert "4200017" in text


def test_it_says_what_is_wrong_and_where_the_cure_is(
    site: PageSite, database: Database, operations: Operations
):
    database.state = snapshot(lane(0), lane(1, age=60.0), parked=Parked(1, 180.0))
    operations.found = [letter(7), letter(8, "order-8", status=DeadLetterStatus.SKIPPED)]
    text = site.get("/", **AS_VIEWER).text
    assert "<title>2 problems · outbox · outbox</title>" in text
    assert "2 problems: silent lane, parked keys." in text
    assert 'href="#parked"' in text
    assert 'href="/help#silent-lane"' in text
    assert re.search(r'id="lane-1" data-silent="yes".*?! silent, 1m', text, re.DOTALL)
    assert text.index('id="parked-table"') < text.index('id="letter-7"') < text.index('id="skipped-table"')
    assert text.index('id="skipped-table"') < text.index('id="letter-8"')


def test_problems_lead_to_a_runbook_of_ones_own(database: Database, operations: Operations):
    database.state = snapshot(lane(0), lane(1, age=60.0))
    with serving(configured(docs="https://wiki.example/outbox?problem={code}&v=1"), database) as site:
        text = site.get("/", **AS_VIEWER).text
    assert 'href="https://wiki.example/outbox?problem=silent-lane&amp;v=1"' in text


def test_every_problem_has_its_help(site: PageSite):
    text = site.get("/help", **AS_VIEWER).text
    assert re.findall(r'<section class="help" id="([\w-]+)"', text) == [str(code) for code in Code]


def test_what_others_have_written_is_escaped(site: PageSite, database: Database, operations: Operations):
    operations.found = [letter(1, HOSTILE, reason=HOSTILE, value=HOSTILE, headers=((HOSTILE, HOSTILE),))]
    operations.noted = [entry(HOSTILE)]
    takeovers = [ClusterState(cluster=2, role=Role.OTHER, takeover=takeover(HOSTILE))]
    database.state = snapshot(clusters=takeovers, pauses=[pause(HOSTILE, reason=HOSTILE)])
    paths = ("/", "/letter?id=1", "/journal", "/do/skip?id=1", "/do/pause")
    pages = [site.get(path, **AS_ALICE) for path in (*paths, f"/do/pause?{urlencode({'topic': HOSTILE})}")]
    pages.append(site.post("/letter/reveal", ALICE, id="1"))
    for page in pages:
        assert page.code == 200, page.text
        assert ESCAPED in page.text
        assert "<script>" not in page.text
        # A hidden field has a topic as it is.
        assert not {"\u202e", "\x1b"} & set(
            re.sub(r'type="hidden" name="topic" value="[^"]*"', "", page.text)
        )


def test_a_key_of_any_length_makes_no_heavy_page(site: PageSite, operations: Operations):
    operations.found = [letter(1, "k" * 300_000, reason="r" * 300_000)]
    for path in ("/", "/letter?id=1", "/do/skip?id=1"):
        page = site.get(path, **AS_ALICE).text
        assert "kkk… (more than 1,000 characters)" in page
        assert len(page) < 30_000


def test_who_comes_after_a_while_sees_nothing_of_long_ago(
    site: PageSite, operations: Operations, monkeypatch: pytest.MonkeyPatch
):
    for name in ("READ_SECONDS", "REST", "UNWATCHED_SECONDS"):
        monkeypatch.setattr(page_letters, name, 0)
    for number in range(5):
        operations.noted = [entry(f"action {number}")]
        assert f"action {number}" in site.get("/journal", **AS_ALICE).text


def test_nothing_but_its_own_files_is_loaded(site: PageSite):
    page = site.get("/", **AS_VIEWER)
    assert "default-src 'self'" in page.headers["content-security-policy"]
    addresses = set(re.findall(r'(?:src|href|action)="([^"]*)"', page.text))
    assert all(address.startswith(("/", "#")) or not address for address in addresses)
    assert not re.search(r"<style|<script(?! src)| style=| on\w+=", page.text)
    for address in addresses:
        if address.startswith("/static/"):
            assert site.get(address).code == 200
    assert site.get("/static/../page.py").code == 404


def test_a_database_that_is_away_leaves_the_last_known_state(
    site: PageSite, database: Database, operations: Operations, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(page_letters, "READ_SECONDS", 0.2)
    operations.found = [letter(7)]
    assert "All is well." in site.get("/", **AS_VIEWER).text
    database.state = operations.error = AWAY
    until(lambda: "Database away" in site.get("/", **AS_VIEWER).text)
    until(lambda: "Cannot be read: Connection refused" in site.get("/", **AS_VIEWER).text)
    text = site.get("/outbox/live?name=outbox", **AS_VIEWER).text
    assert re.search(r"The database does not answer: what is shown is of \d\d:\d\d:\d\d\.", text)
    assert 'id="state" class="stale"' in text
    assert "harvester-a" in text
    assert 'id="letter-7"' in text
    site.post("/do/retry", ALICE, ids="7", reason="x")
    assert 'id="letter-7"' in site.get("/", **AS_VIEWER).text
    database.state, operations.error = snapshot(), None
    until(lambda: "All is well." in site.get("/outbox/live", **AS_VIEWER).text)


def test_what_was_seen_while_nobody_looked_at_the_page_is_known(
    site: PageSite, database: Database, operations: Operations
):
    assert site.get("/status", **AS_VIEWER).code == 200
    database.state = AWAY
    until(lambda: "Database away" in site.get("/", **AS_VIEWER).text)
    assert "harvester-a" in site.get("/", **AS_VIEWER).text


def test_a_database_that_hangs_is_told_soon_and_holds_nobody_up(
    site: PageSite, database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(statuses, "PATIENCE", 0.5)
    database.answers.clear()
    late = "no answer for 500ms and longer"
    until(lambda: late in site.get("/", **AS_VIEWER).text)  # nothing is known before the database is asked
    with ThreadPoolExecutor(20) as pool:
        texts = list(pool.map(lambda _: site.get("/", **AS_VIEWER).text, range(40)))
    assert all(late in text for text in texts)
    assert database.looks == 1
    database.answers.set()
    until(lambda: "All is well." in site.get("/", **AS_VIEWER).text)


def test_two_hundred_browsers_ask_the_database_as_often_as_one(
    site: PageSite, database: Database, operations: Operations
):
    began = time.monotonic()
    with ThreadPoolExecutor(50) as pool:
        pages = list(pool.map(lambda _: site.get("/outbox/live", **AS_VIEWER), range(400)))
    took = time.monotonic() - began
    assert {page.code for page in pages} == {200}
    assert database.looks <= 2 + took
    assert operations.reads <= 1 + took / 2


def test_the_more_look_the_longer_they_are_told_to_wait(site: PageSite, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("outbox_console.page.live.monotonic", lambda: 100.0)
    pauses = [site.get("/outbox/live", **AS_VIEWER).headers["outbox-pause"] for _ in range(4)]
    assert pauses == ["2.00", "2.05", "2.10", "2.15"]


def test_what_has_not_changed_is_not_sent_again(site: PageSite, operations: Operations):
    def again(wrapped: str = "{}") -> Answered:
        tag = site.get("/outbox/live", **AS_ALICE).headers["etag"]
        return site.get("/outbox/live", If_None_Match=wrapped.format(tag), **AS_ALICE)

    until(lambda: again().code == 304)
    until(lambda: again('"another", W/{}').code == 304)  # as behind a proxy that compresses
    unchanged = again()
    assert unchanged.text == ""
    assert unchanged.headers["etag"]
    assert float(unchanged.headers["outbox-pause"]) >= 1.9
    operations.found = [letter(7)]
    assert site.post("/do/retry", ALICE, ids="8", reason="nothing, so that it is read anew").code == 303
    changed = site.get("/outbox/live", If_None_Match=unchanged.headers["etag"], **AS_ALICE)
    assert changed.code == 200
    assert 'id="letter-7"' in changed.text


@pytest.fixture
def several() -> Settings:
    return configured({name: {"outboxTable": name} for name in ("well", "sick", "away", "good")})


def test_several_outboxes_are_one_line_each_the_worst_first(
    several: Settings, database: Database, operations: Operations
):
    database.states = {"away": AWAY, "sick": snapshot(lane(0), lane(1, age=60.0))}
    with serving(several, database) as site:
        text = site.get("/", **AS_VIEWER).text
        assert re.findall(r'data-outbox="([^"]*)" data-state="(\w+)"', text) == [
            ("away", "away"),
            ("sick", "problems"),
            ("good", "well"),
            ("well", "well"),
        ]
        assert "<title>2 of 4 need attention · all outboxes · outbox</title>" in text
        [sick] = re.findall(r'id="outbox-sick".*?</tr>', text, re.DOTALL)
        assert "have sent no heartbeat for up to 1m" in sick, "since when"
        assert 'href="/outbox?name=good"' in text
        assert "All is well." in site.get("/outbox?name=good", **AS_VIEWER).text
        assert 'data-live="/outbox/live?name=good"' in site.get("/outbox?name=good", **AS_VIEWER).text
        missing = site.get("/outbox?name=none", Accept="text/html", **AS_VIEWER)
        assert missing.code == 404
        assert "there is no such outbox" in missing.text
        assert site.get("/outbox/live?name=none", **AS_VIEWER).code == 404


def test_outboxes_are_searched_for(several: Settings, database: Database, operations: Operations):
    database.states = {"sick": snapshot(lane(0), lane(1, age=60.0)), "good": snapshot(pauses=[pause()])}
    titles = re.compile(r'data-outbox="([^"]*)"')
    with serving(several, database) as site:
        until(lambda: len(titles.findall(site.get("/", **AS_VIEWER).text)) == 4)
        page = site.get("/?q=OO", **AS_VIEWER).text
        assert titles.findall(page) == ["good"]
        assert "Paused: topic orders." in page
        assert '<p id="shown" class="dim" role="status">1 shown.</p>' in page
        assert 'data-live="/outbox/live?q=OO&amp;problems=0"' in page
        assert titles.findall(site.get("/outbox/live?q=OO&problems=0", **AS_VIEWER).text) == ["good"]
        assert titles.findall(site.get("/?problems=1", **AS_VIEWER).text) == ["sick"]
        assert titles.findall(site.get("/?q=oo&problems=1", **AS_VIEWER).text) == []
        looks = database.looks
        for number in range(100):
            page = site.get(f"/?{urlencode({'q': f'{HOSTILE}{number}'})}", **AS_VIEWER).text
            assert "<script>" not in page
        assert database.looks <= looks + 4 * 3, "each search costs a look"


def test_who_waits_for_others_to_be_looked_at_is_not_called_away(
    database: Database, operations: Operations, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(statuses, "PATIENCE", 0.5)
    many = configured({f"tenant-{number:02}": {"outboxTable": f"t{number}"} for number in range(20)})
    database.answers.clear()  # and so the first eight hold up all others
    with serving(many, database) as site:
        found = re.compile(r'data-outbox="[^"]*" data-state="(\w+)"')
        until(lambda: found.findall(site.get("/", **AS_VIEWER).text) == ["away"] * 8 + ["unknown"] * 12)
        database.answers.set()
        until(lambda: "All 20 outboxes are well." in site.get("/", **AS_VIEWER).text)
        database.state = AWAY
        until(lambda: found.findall(site.get("/", **AS_VIEWER).text) == ["away"] * 20)
        database.answers.clear()
        end = time.monotonic() + 2.5  # some of them wait for their turn, and the last look at them has failed
        while time.monotonic() < end:
            assert found.findall(site.get("/", **AS_VIEWER).text) == ["away"] * 20
        database.answers.set()


def test_how_much_of_the_history_is_shown_can_be_chosen(database: Database, operations: Operations):
    history, now = History(), datetime.now(UTC)
    for minutes in range(50, 0, -5):
        history.add(now - timedelta(minutes=minutes), snapshot(records=minutes * 100))
    with serving(configured(), database, lambda _: history) as site:
        shown = {
            span: site.get(f"/?span={span}", **AS_VIEWER).text for span in ("quarter", "hour", "day", "x")
        }
        live = site.get("/outbox/live?name=outbox&span=quarter", **AS_VIEWER).text
    for span, heading in (("quarter", "15 minutes"), ("hour", "hour"), ("day", "day"), ("x", "hour")):
        assert f"The last {heading}</h2>" in shown[span]
    assert 'id="span-day" href="/outbox?name=outbox&amp;span=day" aria-current="true"' in shown["day"]
    assert 'data-live="/outbox/live?name=outbox&amp;span=quarter"' in shown["quarter"]
    assert "The last 15 minutes</h2>" in live
    assert "at most 1,000" in live
    assert "at most 5,000" in shown["day"]
    assert "last heartbeat within 5s" in live


def test_the_last_hour_has_gaps_where_nothing_is_known(database: Database, operations: Operations):
    history, now = History(), datetime.now(UTC)
    for minutes in range(20, 0, -1):
        at = now - timedelta(minutes=minutes)
        if 8 < minutes < 12:
            history.failed(at, "Connection refused")
        else:
            history.add(at, snapshot(records=minutes * 100))
    with serving(configured(), database, lambda _: history) as site:
        text = site.get("/", **AS_VIEWER).text
    assert re.search(
        r'id="graph-backlog".*?now 100, at most 2,000; not known at times</desc>', text, re.DOTALL
    )
    assert "the database can be queried again" in text
    assert re.search(r"Known since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text)


def test_a_pause_is_shown_with_the_lanes_that_have_not_answered(site: PageSite, database: Database):
    database.state = snapshot(pauses=[pause("orders", open_=(0, 1)), pause("", reason="all stop")])
    text = site.get("/", **AS_VIEWER).text
    assert 'href="#paused"' in text
    assert re.search(
        r'data-subject="topic orders" data-effect="no".*not yet: waiting for lanes 0, 1', text, re.DOTALL
    )
    assert re.search(r'data-subject="the whole outbox" data-effect="yes".*all stop', text, re.DOTALL)
    assert "/do/" not in text
    operators = site.get("/", **AS_ALICE).text
    assert 'href="/do/resume?outbox=outbox&amp;topic=orders"' in operators
    assert 'href="/do/resume?outbox=outbox&amp;whole=1"' in operators


def test_who_may_only_read_sees_no_verb_and_is_told_why(
    site: PageSite, database: Database, operations: Operations
):
    database.state = snapshot(clusters=[ClusterState(cluster=2, role=Role.OTHER)])
    operations.found = [letter(7)]
    text = site.get("/", **AS_VIEWER).text
    assert "/do/" not in text
    assert "checkbox" not in text
    assert "You may only read" in text
    shown = site.get("/letter?id=7", **AS_VIEWER).text
    assert "/do/" not in shown
    assert "only operators may see them" in shown
    assert site.get("/do/retry?id=7", **AS_VIEWER).code == 403
    assert site.post("/do/retry", VIEWER, ids="7", reason="x").code == 403
    assert site.post("/letter/reveal", VIEWER, id="7").code == 403
    operators = site.get("/", **AS_ALICE).text
    assert {"/do/retry", "/do/skip", "/do/raise-fence", "/do/take-over"} <= set(
        re.findall(r'"(/do/[\w-]+)', operators)
    )
    assert operations.noted == []
