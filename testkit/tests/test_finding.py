"""The search for a service: the environment first, and a clear failure last."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from outbox_testkit import finding
from outbox_testkit.services import KafkaBroker, PostgresServer, ServiceError
from outbox_testkit.services.external import ExternalPostgres


@pytest.fixture
def nothing_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: object) -> None:
        raise ServiceError("nothing embedded here")

    monkeypatch.setattr(PostgresServer, "start", refuse)
    monkeypatch.setattr(KafkaBroker, "start", refuse)


@pytest.mark.usefixtures("nothing_embedded")
def test_the_environment_is_asked_first() -> None:
    with finding.open_postgres({"OUTBOX_TEST_POSTGRES": "host=db.example"}) as server:
        assert server.dsn == "host=db.example"
        assert server.dsn_of("other") == "host=db.example dbname=other"
    with finding.open_kafka({"OUTBOX_TEST_KAFKA": "kafka.example:9092"}) as broker:
        assert broker.bootstrap == "kafka.example:9092"


@pytest.mark.usefixtures("nothing_embedded")
def test_docker_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    @contextmanager
    def container() -> Iterator[ExternalPostgres]:
        yield ExternalPostgres("host=container")
        closed.append(True)

    monkeypatch.setattr(finding, "_postgres_container", container)
    with finding.open_postgres({}) as server:
        assert server.dsn == "host=container"
        assert closed == []
    assert closed == [True]


@pytest.mark.usefixtures("nothing_embedded")
@pytest.mark.parametrize("service", ["postgres", "kafka"])
def test_none_at_all_is_an_error_with_every_reason(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    opened = finding.open_postgres({}) if service == "postgres" else finding.open_kafka({})
    with pytest.raises(ServiceError, match="nothing embedded here") as caught, opened:
        pass
    assert f"OUTBOX_TEST_{service.upper()}" in str(caught.value)
    assert "Docker could not" in str(caught.value)


def test_services_load_no_test_library() -> None:
    script = "import sys, outbox_testkit.services; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "outbox_testkit.services.kafka" in loaded
    assert loaded.isdisjoint({"pytest", "hypothesis", "testcontainers", "docker", "pyspark"})
