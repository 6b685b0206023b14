"""What `outbox run` serves and pushes: missing libraries, and a push to a collector."""

import gzip
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.metrics import CallbackOptions
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from outbox_api import ConfigError
from outbox_core.cli.run import monitored
from outbox_core.config import parse
from outbox_core.control.protocol import Report
from outbox_core.events.measurements import Measurements
from outbox_core.events.metrics import LaneMetrics
from outbox_core.leadership.leader import Leadership, Totals
from outbox_core.monitoring.figures import Figure, RunningOutbox
from outbox_core.monitoring.names import METRICS, Kind
from outbox_core.monitoring.provider import Collection
from outbox_core.settings import Settings

from .test_http import Harvest


def settings_of(**http: object) -> Settings:
    harvest = {
        "engine": "inline",
        "elector": "static",
        "dialect": "sqlite",
        "dataSource": "/no/such/folder/db",
    }
    return parse(json.dumps({"http": http, "harvest": harvest}))


class Counted(list[Figure]):
    """Figures that count how often somebody goes through them."""

    looks = 0

    def __iter__(self) -> Iterator[Figure]:
        self.looks += 1
        return super().__iter__()


class OfOneOutbox:
    def __init__(self) -> None:
        self.figures = Counted(Figure(each, {}, 1) for each in METRICS if each.kind is not Kind.HISTOGRAM)

    def wait(self, seconds: float) -> None:
        pass

    def read(self) -> list[Figure]:
        return self.figures


def test_a_collection_goes_through_all_figures_once_however_many_metrics_there_are():
    known = OfOneOutbox()
    collection = Collection(known, 0.0)
    observed = [list(collection.observations(each)(CallbackOptions())) for each in METRICS]
    assert collection.histograms() == []
    assert sum(map(len, observed)) == len(known.figures)
    assert known.figures.looks == 1


def test_a_missing_library_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    monkeypatch.delitem(sys.modules, "outbox_core.monitoring.otlp", raising=False)
    said = r"OTEL_METRICS_EXPORTER is 'otlp', but .*harvester\[otlp\]"
    variables = {"OTEL_METRICS_EXPORTER": "otlp"}
    with pytest.raises(ConfigError, match=said), monitored(settings_of(), list, variables):
        pass


def test_another_protocol_of_otlp_is_refused():
    variables = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(ConfigError, match="http/protobuf only"), monitored(settings_of(), list, variables):
        pass


class Collector(HTTPServer):
    """Receives what is pushed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pushes: list[ExportMetricsServiceRequest] = []

    def metrics(self) -> dict[str, Metric]:
        """Returns the metrics of the last push."""
        [resource] = self.pushes[-1].resource_metrics
        return {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.pushes.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        """Logs nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_metrics_are_pushed_at_the_end_at_least(collector: Collector, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_address[1]}")
    monkeypatch.setattr("outbox_core.cli.run._LAST_PUSH_SECONDS", 60.0)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    totals, measurements = Totals(), Measurements(published={"orders": 5})
    measurements.step("mark", 0.02, 5)
    leadership = Leadership(7, lambda: 3.0)
    leadership.exchange(Report(7, 0, "a", {3: LaneMetrics(purged=5)}, measurements_by_lane={3: measurements}))
    totals.begin(leadership, 0.5)
    settings = settings_of()
    observed = RunningOutbox(settings.harvest, Harvest(leads=True, totals=totals))
    with monitored(settings, lambda: [observed], {"OTEL_METRICS_EXPORTER": "otlp"}):
        pass
    metrics = collector.metrics()
    [purged] = metrics["outbox.purged"].sum.data_points
    assert purged.as_int == 5
    assert {each.key: each.value.string_value for each in purged.attributes} == {
        "outbox.name": "outbox",
        "outbox.lane": "3",
    }
    assert metrics["outbox.purged"].sum.is_monotonic
    [step] = metrics["outbox.step.duration"].histogram.data_points
    assert (step.count, step.sum) == (1, 0.02)
    assert len(step.bucket_counts) == len(step.explicit_bounds) + 1
    assert not step.HasField("min")
    [up] = metrics["outbox.database.up"].gauge.data_points
    assert up.as_int == 0
    attributes = {
        each.key: each.value.string_value
        for each in collector.pushes[-1].resource_metrics[0].resource.attributes
    }
    assert attributes["service.name"] == "outbox"
    assert attributes["deployment.environment.name"] == "test"
