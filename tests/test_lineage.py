"""Runs of an outbox as a catalog sees them: a hand-over, an error, and servers that are away or hang."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import pytest
from outbox_api import DriverError
from outbox_core.config import parse
from outbox_core.events import LeaderAcquired
from outbox_core.harvest import Harvest, listening

from .harvesters import Fleet, until
from .shop import Shop

pytestmark = pytest.mark.slow
API_KEY = "not-to-be-logged"


class Catalog(ThreadingHTTPServer):
    """Keeps the events that it receives; while ``open`` is not set it hangs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.open = Event()
        self.open.set()
        self.events: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def states(self, run: str) -> list[str]:
        return [each["eventType"] for each in self.events if each["run"]["runId"] == run]

    def wait_for(self, run: str, state: str, rows: int | None = None) -> dict[str, Any]:
        """Waits for such an event of a run, and returns it."""

        def found() -> list[dict[str, Any]]:
            return [
                each
                for each in self.events
                if (each["run"]["runId"], each["eventType"]) == (run, state) and rows in (None, rows_of(each))
            ]

        first: dict[str, Any] = until(found, f"{state} of {run}: {self.states(run)}", 60)[0]
        return first


class Handler(BaseHTTPRequestHandler):
    server: Catalog

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.open.wait()
        self.server.events.append(json.loads(body))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with Catalog() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.open.set()
        server.shutdown()


def settings(shop: Shop, url: str) -> dict[str, Any]:
    listener = {"driver": "openlineage", "url": url, "apiKey": API_KEY, "interval": "0s", "timeout": "1s"}
    return {"listener": listener, "topics": [shop.topic], "elector": "lease"}


def rows_of(event: dict[str, Any]) -> int:
    (table,), (topic,) = event["inputs"], event["outputs"]
    rows: int = table["inputFacets"]["inputStatistics"]["rowCount"]
    assert topic["outputFacets"]["outputStatistics"]["rowCount"] == rows
    return rows


class Observed:
    """A harvest in this process, as ``outbox run`` has it, whose end waits for the catalog longer."""

    def __init__(self, name: str, shop: Shop, catalog: Catalog, **harvest: Any) -> None:
        keys = {
            "name": name,
            "baseKafkaConfig": {"bootstrap.servers": shop.kafka.bootstrap},
            "producerKafkaConfig": {"delivery.timeout.ms": 4000},
            "dataSource": shop.dsn,
            "engine": "inline",
            "limits": {"minMetricsInterval": "0.1s"},
            **settings(shop, catalog.url),
            **harvest,
        }
        self.runs: SimpleQueue[str] = SimpleQueue()
        self.harvest = Harvest(parse(json.dumps({"harvest": keys}), "test.yaml", {}).harvest)
        self.harvest.set_event_handler(self._handle)
        self.harvest.start()

    def _handle(self, event: object) -> None:
        if isinstance(event, LeaderAcquired):
            self.runs.put(str(event.leader_id))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the end of a harvest wait for a listener as long as a busy machine may need."""
    monkeypatch.setattr(listening, "END_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_hand_over_ends_one_run_and_begins_the_next(shop: Shop, catalog: Catalog) -> None:
    with ExitStack() as stack:
        first = Observed("first", shop, catalog)
        stack.callback(first.harvest.stop)
        run = first.runs.get(timeout=60)
        shop.stash(30, keys=5)
        shop.wait_until_harvested(60)
        started = catalog.wait_for(run, "START", 0)
        catalog.wait_for(run, "RUNNING", 30)
        second = Observed("second", shop, catalog)
        stack.callback(second.harvest.stop)
        first.harvest.stop()
        catalog.wait_for(run, "COMPLETE", 30)
        next_run = second.runs.get(timeout=60)
        shop.stash(7, keys=5, start=31)
        shop.wait_until_harvested(60)
        second.harvest.stop()
        catalog.wait_for(next_run, "COMPLETE", 7)
    assert [catalog.states(each)[0] for each in (run, next_run)] == ["START", "START"]
    jobs = {(each["job"]["namespace"], each["job"]["name"]) for each in catalog.events}
    assert jobs == {("outbox", "outbox")}
    (table,), (topic,) = started["inputs"], started["outputs"]
    with shop.connect() as connection:
        server = connection.info
        assert table["namespace"] == f"postgres://{server.host}:{server.port}"
        assert table["name"] == f"{server.dbname}.public.outbox"
    assert (topic["namespace"], topic["name"]) == (f"kafka://{shop.kafka.bootstrap}", shop.topic)
    assert API_KEY not in json.dumps(catalog.events)
    result = shop.audit()
    assert result.good, result.summary()


@pytest.mark.usefixtures("patient")
def test_a_harvest_that_ends_with_an_error_is_a_run_that_failed(shop: Shop, catalog: Catalog) -> None:
    only = Observed("only", shop, catalog, failures={"stopAfter": "1s"})
    with ExitStack() as stack:
        stack.callback(only.harvest.stop)
        run = only.runs.get(timeout=60)
        with shop.connect() as connection:
            connection.execute("ALTER TABLE outbox RENAME TO hidden")
        with pytest.raises(DriverError) as ended:
            assert only.harvest.wait(60)
        failed = catalog.wait_for(run, "FAIL")
    assert failed["run"]["facets"]["errorMessage"]["message"] == str(ended.value)
    assert catalog.states(run)[-1] == "FAIL"


@pytest.mark.parametrize("hangs", [False, True], ids=["away", "hangs"])
def test_a_catalog_that_does_not_answer_holds_up_neither_records_nor_the_end(
    shop: Shop, fleet: Fleet, catalog: Catalog, hangs: bool
) -> None:
    catalog.open.clear()
    url = catalog.url if hangs else "http://127.0.0.1:1"
    harvester = fleet.start("only", **settings(shop, url))
    harvester.wait_for(f"listener 'openlineage' does not take events: {url}: ", 60)
    shop.stash(30, keys=5)
    shop.wait_until_harvested(60)
    harvester.wait_for(" purged in all", 60)
    harvester.leave()
    assert harvester.count("listener 'openlineage' does not take events") == 1
    assert harvester.find("listener 'openlineage' has not taken ")
    assert API_KEY not in harvester.log.read_text()


def test_a_catalog_that_returns_gets_what_it_missed(shop: Shop, fleet: Fleet, catalog: Catalog) -> None:
    catalog.open.clear()
    harvester = fleet.start("only", **settings(shop, catalog.url))
    acquired = harvester.wait_for("leader acquired: id ", 60).text
    run = acquired.partition("leader acquired: id ")[2].partition(",")[0]
    harvester.wait_for("listener 'openlineage' does not take events", 60)
    catalog.open.set()
    harvester.wait_for("listener 'openlineage' takes events; 0 events were dropped", 60)
    catalog.wait_for(run, "START", 0)
    shop.stash(3, keys=1)
    shop.wait_until_harvested(60)
    catalog.wait_for(run, "RUNNING", 3)
