"""The administration of a cluster; no broker."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from outbox_api import DriverError
from outbox_kafka.client.admin import LATEST, KafkaAdmin
from outbox_kafka.errors import driver_error


def create_error(what: str, error: KafkaError, settings: Mapping[str, Any]) -> DriverError:
    return DriverError(f"{what}: {error.name()}", retryable=True)


class RestartingBroker:
    """Answers with metadata that lists no broker, for the first requests."""

    def __init__(self, requests: int) -> None:
        self.left = requests

    def list_topics(self, timeout: float) -> SimpleNamespace:
        self.left -= 1
        return SimpleNamespace(brokers={1: "broker"} if self.left < 0 else {})

    def poll(self, timeout: float) -> None:
        pass


def admin(broker: RestartingBroker | BrokerBehind, monkeypatch: pytest.MonkeyPatch) -> KafkaAdmin:
    made = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, create_error)
    monkeypatch.setattr(made, "client", broker)
    return made


def test_waits_for_a_broker_that_does_not_list_itself_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = RestartingBroker(3)
    assert len(admin(broker, monkeypatch).wait_for_cluster(10).brokers) == 1
    assert broker.left == -1


def test_cluster_without_a_broker_is_an_error_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DriverError, match=r"cannot reach Kafka at 127\.0\.0\.1:1: BROKER_NOT_AVAILABLE"):
        admin(RestartingBroker(1000), monkeypatch).wait_for_cluster(0.2)


class BrokerBehind:
    """Refuses to tell the offset of a partition that its metadata lists, for the first requests."""

    def __init__(self, code: int, requests: int) -> None:
        self.error = KafkaError(code)
        self.left = requests

    def list_topics(self, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(brokers={1: "broker"}, topics={"t": SimpleNamespace(partitions={0: "led"})})

    def poll(self, timeout: float) -> None:
        pass

    def list_offsets(self, places: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        told = Future[Any]()
        self.left -= 1
        if self.left < 0:
            told.set_result(SimpleNamespace(offset=7))
        else:
            told.set_exception(KafkaException(self.error))
        return dict.fromkeys(places, told)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_a_broker_that_does_not_know_a_partition_yet_is_asked_again(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = admin(BrokerBehind(code, 3), monkeypatch)
    [(place, found)] = asked.offsets(["t"], LATEST, 10.0).items()
    assert (place, found.offset) == (("t", 0), 7)
    with pytest.raises(DriverError, match=KafkaError(code).name()):
        admin(BrokerBehind(code, 1000), monkeypatch).offsets(["t"], LATEST, 0.2)


def test_another_error_of_a_partition_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerBehind(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1000)
    with pytest.raises(DriverError):
        admin(broker, monkeypatch).offsets(["t"], LATEST, 10.0)
    assert broker.left == 999


def test_producer_settings_do_not_bind_an_administrator() -> None:
    KafkaAdmin(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "enable.gapless.guarantee": "true",
            "transactional.id": "a",
            "acks": "0",
        },
        create_error,
    )


@pytest.mark.parametrize("protocol", ["plaintext", "sasl_plaintext"])
def test_a_broker_that_hangs_is_not_called_an_old_one(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "outbox.kafka")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = {
            "bootstrap.servers": place,
            "api.version.request.timeout.ms": 300,
            "security.protocol": protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "a",
            "sasl.password": "b",
        }
        with pytest.raises(DriverError, match=rf"cannot reach Kafka at {place}: .*") as caught:
            KafkaAdmin(settings, driver_error).wait_for_cluster(2)
    said = [str(caught.value), *caplog.messages]
    assert any("ApiVersionRequest failed" in each for each in said)
    assert not [each for each in said if "0.10" in each or "0.9" in each]
