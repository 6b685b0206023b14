"""The JSON side on a real PostgreSQL: what it returns is what it describes, and what it does is noted."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outbox_api import DeadLetterStatus
from outbox_console import work as work_module
from outbox_console.api import VERBS
from outbox_console.requests import RefusedError
from outbox_core import operations
from outbox_core.settings import Settings
from outbox_testkit.proxy import Proxy
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from starlette.routing import Route

from .cli_runner import until
from .http_client import Answered
from .http_server import ALICE, OPERATORS, VIEWER, Server, serving, settings_of
from .test_operations_services import park

CLUSTERS = {"driver": "cluster", "clusterID": 1, "clustersCount": 3, "maximumDelay": "1h"}


OF_KEPT = {
    ("get", "/api/kept/days"),
    ("get", "/api/kept"),
    ("get", "/api/replays"),
    ("post", "/api/kept/reveal"),
    ("post", "/api/replay"),
    ("post", "/api/give-up"),
    ("post", "/api/erase"),
}
"""What ``test_kept_api.py`` asks."""


class Checked:
    """A server each of whose answers must be as it is described."""

    def __init__(self, site: Server) -> None:
        self.site = site
        self.described = json.loads(self._ask("GET", "/openapi.json", VIEWER).text)
        self.seen = set[tuple[str, str, str]]()

    def get(self, path: str, token: str = VIEWER, code: int = 200) -> Any:
        return self._check("get", path, self._ask("GET", path, token), code)

    def post(self, verb: str, code: int = 200, token: str = ALICE, **body: object) -> Any:
        path = f"/api/{verb}"
        return self._check("post", path, self._ask("POST", path, token, json.dumps(body)), code)

    def _ask(self, method: str, path: str, token: str, body: str | None = None) -> Answered:
        headers = [("Authorization", f"Bearer {token}"), ("Content-Type", "application/json")]
        return self.site.ask(method, path, *headers, body=body)

    def _check(self, method: str, path: str, answered: Answered, code: int) -> Any:
        assert answered.code == code, answered
        path = path.partition("?")[0]
        answers = self.described["paths"][path][method]["responses"]
        schema = answers[str(code)]["content"]["application/json"]["schema"]
        told = json.loads(answered.text)
        OAS31Validator({**schema, "components": self.described["components"]}).validate(told)
        self.seen.add((method, path, str(code)))
        return told


@pytest.fixture
def settings(postgres_dsn: str) -> Settings:
    """Three parked keys, ``a`` to ``c``, with two records each."""
    made = settings_for(postgres_dsn)
    park(made.harvest)
    return made


def settings_for(dsn: str) -> Settings:
    # Who waits for a lock does so for as long as a test has it.
    dialect = {"driver": "postgres", "dataSource": dsn, "lockTimeout": "5m", "statementTimeout": "5m"}
    harvest = {"dialect": dialect, "elector": "static", "affinity": CLUSTERS}
    return settings_of(harvest, viewerTokens=[VIEWER], operatorTokens=OPERATORS)


@pytest.fixture
def api(settings: Settings) -> Iterator[Checked]:
    with serving(settings) as site:
        yield Checked(site)


@pytest.fixture
def blocker(settings: Settings, postgres_dsn: str) -> Iterator["psycopg.Connection[Any]"]:
    """Lets nobody change dead letters until its transaction ends."""
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("LOCK TABLE outbox_dead_letters IN SHARE MODE")
        yield connection
        connection.rollback()


def test_the_description_is_one(api: Checked):
    validate(api.described)
    assert {f"/api/{verb}" for verb in VERBS} < api.described["paths"].keys()


def test_all_of_it_is_described_and_each_deed_is_noted(api: Checked):
    told = api.get("/api/parked")
    assert (told["total"], [each["key"] for each in told["letters"]]) == (3, ["a", "b", "c"])
    first, second, third = (each["id"] for each in told["letters"])
    find(api, second, third)
    revealed = api.post("reveal", ids=[third, first, -1], reason="is it one of ours?")
    assert [each["value"]["text"] for each in revealed["letters"]] == ["a 0", "c 0"]
    assert revealed["gone"] == [-1]
    assert api.post("skip", ids=[first, second])["changed"] == [first, second]
    assert [each["id"] for each in api.get("/api/parked?status=skipped")["letters"]] == [first, second]
    done = api.post("redrive", outbox="outbox", ids=[first, third])
    assert (done["changed"], done["gone"]) == ([first], [third])
    assert api.post("retry", ids=[third])["changed"] == [third]
    raised = api.post("raise-fence", reason="it hangs")
    assert (raised["holder"], raised["lanes"]) == ("operator alice", 1)
    late = api.post("raise-fence", 409, fence_token=raised["token"] - 1)
    assert "nothing was done: the fence has changed meanwhile" in late["error"]
    assert api.post("raise-fence", fence_token=raised["token"])["token"] > raised["token"]
    token = api.post("raise-fence")["token"]
    begun = api.post("take-over", cluster=2, fence_token=token)
    assert begun["changed"] is True
    assert api.post("end-takeover", cluster=2, fence_token=begun["token"])["changed"] is True
    paused = api.post("pause", topic="orders", seconds=60)
    assert (paused["pause"]["operator"], paused["query"]) == ("alice", False)
    assert paused["pause"]["until"] is not None
    assert "greater than or equal to 1" in api.post("pause", 400, seconds=0)["error"]
    assert api.post("resume", topic="orders")["pause"]["since"] == paused["pause"]["since"]
    assert api.post("resume")["pause"] is None
    nothing = {"points": [], "events": [], "topics": [], "takeovers": 0}
    assert api.get("/api/history") == {"span": "hour", "not_kept": ""} | nothing
    assert api.get("/api/history?span=day") == {"span": "day", "not_kept": ""} | nothing
    assert "span" in api.get("/api/history?span=week", code=400)["error"]

    entries = api.get("/api/journal?limit=12")["entries"]
    assert api.get(f"/api/journal?limit=11&after={entries[0]['id']}")["entries"] == entries[1:]
    [skipped] = api.get("/api/journal?verb=skip&operator=lic&since=1h")["entries"]
    assert skipped["verb"] == "skip"
    assert "entries of the journal: expected" in api.get("/api/journal?since=soon", code=400)["error"]
    noted = [(each["operator"], each["via"], each["verb"], each["outcome"]) for each in reversed(entries)]
    assert noted[1:4] == [
        ("alice", "http", "skip", "2 changed"),
        ("alice", "http", "redrive", "1 changed, 1 gone"),
        ("alice", "http", "retry", "1 changed"),
    ]
    assert {verb for _, _, verb, _ in noted} == set(VERBS) - {"erase", "give-up"}
    assert [each["reason"] for each in entries if each["reason"]] == ["it hangs", "is it one of ours?"]
    api.get("/openapi.json")
    served = {route.path for route in api.site.app.routes if isinstance(route, Route)}
    assert {path for path in served if path.startswith("/api/")} < api.described["paths"].keys()
    everything = {(method, path) for path, each in api.described["paths"].items() for method in each}
    assert {(method, path) for method, path, _ in api.seen} == everything - {("get", "/status"), *OF_KEPT}


def find(api: Checked, second: int, third: int) -> None:
    """Looks for dead letters, and for what waits."""
    some = api.get("/api/parked?status=parked&limit=2")
    assert (len(some["letters"]), some["next"]) == (2, second)
    rest = api.get(f"/api/parked?status=parked&limit=2&after={second}")
    assert ([each["id"] for each in rest["letters"]], rest["total"], rest["next"]) == ([third], 3, None)
    assert [each["key"] for each in api.get("/api/parked?topic=orders&key_prefix=c")["letters"]] == ["c"]
    assert api.get("/api/parked?reason=LARGE&older_than=1h")["total"] == 0
    waits = api.get("/api/waiting?topic=orders")
    [topic] = waits["topics"]
    assert (topic["topic"], topic["rows"], topic["parked_keys"]) == ("orders", 6, 3)
    assert [(each["key"], each["rows"], each["state"]) for each in waits["keys"]] == [
        (key, 2, "parked") for key in "abc"
    ]
    for rows in (api.get(f"/api/waiting/key?id={second}"), api.get("/api/waiting/key?key=b")):
        assert (rows["key"], rows["rows"], [each["size"] for each in rows["first"]]) == ("b", 2, [4, 4])
    assert api.get("/api/waiting/key?id=0")["key"] is None


def test_values_of_all_kinds(api: Checked, settings: Settings, postgres_dsn: str):
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("UPDATE outbox_dead_letters SET kafka_value = NULL WHERE kafka_key = 'a'")
        connection.execute(
            "UPDATE outbox_dead_letters SET kafka_header_keys = '{x,x}', kafka_header_values = '{<b>,ü}'"
        )
    ids = [each.record.id for each in operations.letters(settings.harvest)]
    letters = api.post("reveal", ids=ids)["letters"]
    assert letters[0]["value"] == {"text": None, "base64": None}
    assert [(each["name"], each["text"]) for each in letters[1]["headers"]] == [("x", "<b>"), ("x", "ü")]


def test_what_cannot_be_done(api: Checked, settings: Settings):
    assert "list them anew" in api.post("retry", 409, ids=[10**9])["error"]
    assert "list them anew" in api.post("reveal", 409, ids=[10**9])["error"]
    assert "this is cluster 1" in api.post("take-over", 409, cluster=1, fence_token=0)["error"]
    assert "there is no cluster 9" in api.post("take-over", 409, cluster=9, fence_token=0)["error"]
    api.post("raise-fence", 404, outbox="other")
    api.post("raise-fence", 403, token=VIEWER)
    api.post("raise-fence", 401, token="wrong")
    for query in ("limit=0", "limit=1001", "limit=x", "limit=%D9%A1", "status=gone"):
        assert query.partition("=")[0] in api.get(f"/api/parked?{query}", code=400)["error"]
    api.get("/api/parked?outbox=other", code=404)
    assert {each.action.verb for each in operations.entries(settings.harvest)} == {"retry", "reveal"}


def test_verbs_are_done_to_all_that_meet_conditions(api: Checked, settings: Settings):
    found = api.get("/api/parked?topic=orders")
    where = {"topic": "orders", "until": found["until"]}
    said = "nothing was done: 3 records match by now, instead of 2; look again"
    assert api.post("retry", 409, where=where, expected=2)["error"] == said
    assert api.post("retry", where={"topic": "order_"}, expected=5, code=409)
    for wrong in (
        {"where": where},
        {"where": {"topik": "orders"}, "expected": 3},
        {"where": where, "expected": 3, "ids": [1]},
        {"where": {"older_than": "soon"}, "expected": 3},
        {"where": {"since": "then"}, "expected": 3},
        {"where": {"reason": 1}, "expected": 3},
        {"where": where, "expected": -1},
        {},
    ):
        api.post("retry", 400, **wrong)
    assert [each.outcome for each in operations.entries(settings.harvest)] == []
    done = api.post("skip", where={**where, "key": "b"}, expected=2)
    assert (len(done["changed"]), done["fewer"]) == (1, 1)
    done = api.post("retry", where=where, expected=3)
    assert (len(done["changed"]), done["fewer"]) == (2, 1)
    assert "(topic orders, until " in operations.entries(settings.harvest)[0].action.subject


def test_a_deed_goes_on_if_its_database_takes_too_long(
    api: Checked,
    settings: Settings,
    blocker: "psycopg.Connection[Any]",
    monkeypatch: pytest.MonkeyPatch,
):
    ids = [each.record.id for each in operations.letters(settings.harvest)]
    with monkeypatch.context() as impatient:
        impatient.setattr(work_module, "PATIENCE", 0.5)
        late = api.post("skip", 504, ids=ids)["error"]
    assert late == "the database has not answered for 500ms; it may be done nevertheless: see the journal"
    assert [each["outcome"] for each in api.get("/api/journal")["entries"]] == [None]
    with monkeypatch.context() as impatient, ThreadPoolExecutor(3) as pool:
        impatient.setattr(work_module, "PATIENCE", 0.5)
        refused = list(pool.map(lambda _: api.post("retry", 504, ids=ids), range(3)))
        assert len(refused) == 3
        # All places are taken: nobody waits for one that is free much later, and the server answers.
        busy = api.post("retry", 503, ids=ids)["error"]
        assert "nothing was done" in busy
    assert api.get("/api/journal")["entries"], "who only looks is not held up"
    assert api.site.get("/livez").code == 200
    blocker.rollback()
    until(lambda: api.site.get("/api/journal", Authorization=f"Bearer {VIEWER}").code == 200)
    skipped = DeadLetterStatus.SKIPPED
    until(lambda: len(operations.letters(settings.harvest, skipped)) == 3)
    until(lambda: all(each["outcome"] for each in api.get("/api/journal")["entries"]))


def test_a_database_that_is_away(settings: Settings, postgres_dsn: str):
    at = conninfo_to_dict(postgres_dsn)
    with Proxy(lambda: int(at["port"] or 0)) as proxy:
        source = make_conninfo(postgres_dsn, host="127.0.0.1", port=proxy.port)
        with serving(settings_for(source)) as site:
            api = Checked(site)
            assert api.get("/api/parked")["total"] == 3
            proxy.close()
            for refused in (api.get("/api/parked", code=503), api.post("retry", 503, ids=[1])):
                assert str(at["password"]) not in refused["error"]
                assert refused["error"]


def test_requests_leave_no_spans_among_those_of_records(monkeypatch: pytest.MonkeyPatch):
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    with serving(settings_of(viewerTokens=[VIEWER])) as site:
        assert site.get("/openapi.json", Authorization=f"Bearer {VIEWER}").code == 200
    assert not spans.get_finished_spans()


async def test_a_machine_without_threads(monkeypatch: pytest.MonkeyPatch):
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    work = work_module.Work()
    with monkeypatch.context() as patched:
        patched.setattr("outbox_console.work.ContextThread.start", fail)
        for _ in range(work_module.MOST_AT_ONCE + 1):
            with pytest.raises(RefusedError, match="nothing was done: this machine"):
                await work.action(lambda: 1)
    assert await work.read(lambda: 1) == 1


async def test_who_reads_takes_no_place_of_a_verb():
    work, ended = work_module.Work(), threading.Event()
    reading = [
        asyncio.create_task(work.read(lambda: ended.wait(60))) for _ in range(work_module.MOST_AT_ONCE)
    ]
    await asyncio.sleep(0.1)
    assert await work.action(lambda: 1) == 1
    ended.set()
    assert await asyncio.gather(*reading) == [True] * work_module.MOST_AT_ONCE


def test_a_defect_tells_nothing_of_it(
    api: Checked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*_: object) -> None:
        raise ValueError("hunter2")

    monkeypatch.setattr("outbox_core.operations.dispatch.raise_fence", fail)
    refused = api.site.ask(
        "POST",
        "/api/raise-fence",
        ("Authorization", f"Bearer {ALICE}"),
        ("Content-Type", "application/json"),
        body="{}",
    )
    assert refused.code == 500
    assert "hunter2" not in refused.text
    assert "a request over HTTP has failed" in caplog.text


def test_one_of_several_outboxes_is_chosen():
    settings = settings_of(viewerTokens=[VIEWER], operatorTokens=OPERATORS)
    several = Settings(
        tuple(replace(settings.harvest, label=label) for label in ("first", "second")),
        several=True,
        http=settings.http,
    )
    with serving(several) as site:
        api = Checked(site)
        assert "choose one" in api.get("/api/history", code=400)["error"]
        told = api.get("/api/history?outbox=second")
        assert told["points"] == told["events"] == []
        assert "Connection refused" in told["not_kept"]
        assert "choose one" in api.post("raise-fence", 400)["error"]
