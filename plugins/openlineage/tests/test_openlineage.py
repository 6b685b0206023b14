"""What a server of OpenLineage receives, over HTTP, and what a listener does when it does not answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID, uuid4

import attr
import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    schema_dataset,
)
from outbox_api import ConfigError, DriverError, FileText, HarvestEvent
from outbox_core.config import parse
from outbox_openlineage import OpenLineageOptions, create

POSTGRES = ("postgres://a:5433", "shop.public.outbox")
START = datetime(2026, 1, 1, tzinfo=UTC)
FACETS = {
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "jobType": job_type_job.JobTypeJobFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "schema": schema_dataset.SchemaDatasetFacet,
}


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted; ``answer`` is the status, and while ``open`` is not set it hangs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = 201
        self.open = Event()
        self.open.set()
        self.received: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.open.wait()
        if self.path == "/api/v1/lineage" and self.server.answer == 201:
            self.server.received.append(json.loads(body))
            self.server.keys.append(self.headers["Authorization"])
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.open.set()
        server.shutdown()


def options(url: str, **more: Any) -> OpenLineageOptions:
    given: dict[str, Any] = {
        "kafka": {"bootstrap.servers": "SSL://kafka-1,kafka-2:9092", "sasl.password": "hidden"},
        "topics": ("orders", "audit.*"),
        "dataset": lambda: ("postgres://db:5432", "shop.public.outbox"),
    }
    return OpenLineageOptions(url=url, **{**given, **more})


def happened(event: str, seconds: float = 0.0, purged: int = 0, **fields: Any) -> HarvestEvent:
    return HarvestEvent(event, START + timedelta(seconds=seconds), "orders", purged, fields)


def acquired(leader: UUID) -> HarvestEvent:
    return happened("LeaderAcquired", leader_id=leader, token=7, elector="lease", silence=None)


def validated(document: dict[str, Any]) -> RunEvent:
    """Makes the client's classes of an event, which refuse other keys and other types of values."""

    def of(facets: dict[str, Any]) -> dict[str, Any]:
        made = {}
        for name, facet in facets.items():
            given = {key: value for key, value in facet.items() if key not in ("_producer", "_schemaURL")}
            made[name] = FACETS[name](producer=facet["_producer"], **given)
            assert made[name]._schemaURL == facet["_schemaURL"]
        return made

    rest = dict(document)
    run, job = rest.pop("run"), rest.pop("job")
    for kind, name, facets in (
        (InputDataset, "inputs", "inputFacets"),
        (OutputDataset, "outputs", "outputFacets"),
    ):
        rest[name] = [
            kind(**{**each, facets: of(each[facets]), "facets": of(each.get("facets", {}))})
            for each in rest[name]
        ]
    assert rest.pop("schemaURL") == RunEvent._get_schema()
    state = RunState(rest.pop("eventType"))
    event = RunEvent(
        eventType=state,
        run=Run(run["runId"], of(run["facets"])),
        job=Job(job["namespace"], job["name"], of(job["facets"])),
        **rest,
    )
    attr.validate(event)
    return event


def test_a_leadership_is_a_run_of_the_outbox_from_its_table_to_its_topics(receiver: Receiver) -> None:
    listener, leader = create(options(receiver.url, namespace="shop")), uuid4()
    listener.handle(acquired(leader))
    listener.handle(happened("MeterRead", 59, 10))
    listener.handle(happened("MeterRead", 60, 11))
    listener.handle(happened("MeterRead", 65, 12))
    listener.handle(happened("LeaderRevoked", 70, 13, error=""))
    events = [validated(each) for each in receiver.received]
    assert [each.eventType for each in events] == [RunState.START, RunState.RUNNING, RunState.COMPLETE]
    assert {each.run.runId for each in events} == {str(leader)}
    assert {(each.job.namespace, each.job.name) for each in events} == {("shop", "orders")}
    last = receiver.received[-1]
    (table,), (topic,) = last["inputs"], last["outputs"]
    assert (table["namespace"], table["name"]) == ("postgres://db:5432", "shop.public.outbox")
    assert (topic["namespace"], topic["name"]) == ("kafka://kafka-1:9092", "orders")
    assert table["inputFacets"]["inputStatistics"]["rowCount"] == 13
    assert topic["outputFacets"]["outputStatistics"]["rowCount"] == 13
    assert "kafka_topic" in [each["name"] for each in table["facets"]["schema"]["fields"]]
    assert last["eventTime"] == "2026-01-01T00:01:10+00:00"
    assert "hidden" not in json.dumps(receiver.received)


def test_rows_of_several_topics_are_counted_at_the_table_only(receiver: Receiver) -> None:
    create(options(receiver.url, topics=("a", "b"))).handle(acquired(uuid4()))
    assert [each["name"] for each in receiver.received[0]["outputs"]] == ["a", "b"]
    assert not any(each["outputFacets"] for each in receiver.received[0]["outputs"])


@pytest.mark.parametrize(
    ("end", "state", "text"),
    [
        (happened("LeaderFenced", reason="a newer token", error=""), "ABORT", "a newer token"),
        (happened("LeaderFenced", reason="the harvest ends", error="no table"), "FAIL", "no table"),
        (happened("LeaderRevoked", error="no table"), "FAIL", "no table"),
    ],
)
def test_a_run_that_is_lost_ends_once_and_says_why(
    receiver: Receiver, end: HarvestEvent, state: str, text: str
) -> None:
    listener = create(options(receiver.url))
    listener.handle(happened("LeaderRevoked", error=""))  # without a run
    listener.handle(acquired(uuid4()))
    listener.handle(end)
    listener.handle(happened("LeaderRevoked", error=""))
    assert [each["eventType"] for each in receiver.received] == ["START", state]
    event = validated(receiver.received[-1])
    assert receiver.received[-1]["run"]["facets"]["errorMessage"]["message"] == text
    assert event.run.runId == receiver.received[0]["run"]["runId"]


def test_a_key_is_read_anew_for_each_event(receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "key"
    listener = create(options(receiver.url, api_key=FileText((file,))))
    with pytest.raises(DriverError) as away:
        listener.handle(acquired(uuid4()))
    assert away.value.retryable
    for key in ("one", "two"):
        file.write_text(f"{key}\n")
        listener.handle(acquired(uuid4()))
    assert receiver.keys == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize(("answer", "retryable"), [(400, False), (422, False), (401, True), (503, True)])
def test_a_server_that_refuses_may_be_asked_again_unless_it_refuses_the_event(
    receiver: Receiver, answer: int, retryable: bool
) -> None:
    receiver.answer = answer
    with pytest.raises(DriverError, match=f"{receiver.url}: HTTP {answer}") as refused:
        create(options(receiver.url, api_key="hidden")).handle(acquired(uuid4()))
    assert refused.value.retryable == retryable
    assert "hidden" not in str(refused.value)


def test_a_server_that_hangs_or_is_away_is_an_error_in_time(receiver: Receiver) -> None:
    receiver.open.clear()
    listener = create(options(receiver.url, timeout=0.2))
    with pytest.raises(DriverError, match="ReadTimeout") as hangs:
        listener.handle(acquired(uuid4()))
    assert hangs.value.retryable
    listener = create(options("http://127.0.0.1:1"))
    with pytest.raises(DriverError, match="ConnectionError") as away:
        listener.handle(acquired(uuid4()))
    assert away.value.retryable


@pytest.mark.parametrize(
    "url", ["marquez:5000", "http://user:pass@marquez", "http://marquez?key=1", "http://"]
)
def test_a_url_has_no_secret_and_names_a_server(url: str) -> None:
    with pytest.raises(ConfigError, match="'url'"):
        options(url)


@pytest.mark.parametrize(
    ("dialect", "source", "table", "dataset"),
    [
        ("mysql", "mysql://u:pw@db/shop", "box", ("mysql://db:3306", "shop.box")),
        ("oracle", "scott/pw@db:1521/svc", "outbox", ("oracle://db:1521", "svc.SCOTT.OUTBOX")),
        ("oracle", "oracle://u:pw@db/svc", "s.box", ("oracle://db:1521", "svc.S.BOX")),
        ("oracle", "alias", "outbox", ("oracle://alias", "OUTBOX")),
        ("postgres", "host=a,b port=5433,5434 password='x dbname=pw' dbname=shop", "outbox", POSTGRES),
        ("postgres", "postgresql://u:pw@a:5433/shop", "Public.Outbox", POSTGRES),
        ("postgres", "postgresql://u:pw@pw@a:5433/shop", "outbox", POSTGRES),
        ("sqlite", "/tmp/shop.db", "outbox", ("SQLite database '/tmp/shop.db'", "outbox")),
        (
            "sqlserver",
            "Server=db;Database=shop;Uid=u;Pwd=pw",
            "outbox",
            ("mssql://db:1433", "shop.dbo.outbox"),
        ),
    ],
)
def test_an_outbox_gives_its_listener_the_names_of_its_table_and_topics(
    dialect: str, source: str, table: str, dataset: tuple[str, str]
) -> None:
    keys = {
        "dialect": dialect,
        "dataSource": source,
        "outboxTable": table,
        "engine": "inline",
        "elector": "static",
        "topics": ["orders", "o.*"],
        "baseKafkaConfig": {"bootstrap.servers": "elsewhere:9092"},
        "producerKafkaConfig": {"bootstrap.servers": "kafka-1:9093,kafka-2:9093"},
        "listener": {"driver": "openlineage", "url": "http://marquez:5000"},
    }
    chosen = parse(json.dumps({"harvest": keys}), "test.yaml", {}).harvest.listener
    assert chosen is not None
    assert chosen.options.dataset() == dataset
    assert chosen.options.outputs == [("kafka://kafka-1:9093", "orders")]
