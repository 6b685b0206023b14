"""The operator's page, with databases that are none."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from outbox_core.config import HarvestSettings
from outbox_core.http import page
from outbox_core.http.page_letters import Contents
from outbox_core.snapshot import Snapshot
from outbox_sdk import DriverError, Parked

from .http_client import Site
from .page_states import HOSTILE, lane, letter, snapshot
from .test_http import Harvest, serving, settings_of


class Database:
    """Shows one state, hangs or fails."""

    def __init__(self) -> None:
        self.state: Snapshot | Exception = snapshot()
        self.looks = 0
        self.answers = threading.Event()
        self.answers.set()

    @contextmanager
    def view(self) -> Iterator[Callable[[HarvestSettings], Snapshot]]:
        def look(_: HarvestSettings) -> Snapshot:
            self.looks += 1
            assert self.answers.wait(60)
            if isinstance(self.state, Exception):
                raise self.state
            return self.state

        yield look


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> list[Contents]:
    found = [Contents([])]
    monkeypatch.setattr(page, "_read", lambda _: found[0])
    return found


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made.answers.set()


@pytest.fixture
def site(database: Database, contents: list[Contents]) -> Iterator[Site]:
    with serving(settings_of(), database, [Harvest()]) as site:
        yield site


def test_it_says_that_all_is_well(site: Site):
    text = site.get("/").text
    assert "<title>All is well · outbox · outbox</title>" in text
    assert 'aria-live="polite">All is well.<' in text
    assert "harvester-a" in text
    assert "4200017" in text


def test_it_says_what_is_wrong_and_where_the_cure_is(
    site: Site, database: Database, contents: list[Contents]
):
    database.state = snapshot(lane(0), lane(1, age=60.0), parked=Parked(1, 180.0))
    contents[0] = Contents([letter()])
    text = site.get("/outbox?name=outbox").text
    assert "<title>2 problems · outbox · outbox</title>" in text
    assert "2 problems: silent lane, parked keys." in text
    assert 'href="#parked"' in text
    assert 'id="letter-7"' in text


def test_what_others_have_written_is_escaped(site: Site, contents: list[Contents]):
    contents[0] = Contents([letter(key=HOSTILE, reason=HOSTILE)])
    text = site.get("/").text
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\x1b[31m&#34;&#39;&amp;" in text


def test_a_database_that_is_away_leaves_the_last_known_state(site: Site, database: Database):
    assert "All is well." in site.get("/").text
    database.state = DriverError("Connection refused", retryable=True)
    end = 50
    while "All is well" in (text := site.get("/outbox/live?name=outbox").text):
        end -= 1
        assert end
        threading.Event().wait(0.2)
    assert "The database has not answered since" in text
    assert "Connection refused" in text
    assert "What follows was last seen" in text
    assert "harvester-a" in text
