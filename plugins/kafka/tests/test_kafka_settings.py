"""The settings of a producer, built from the user's; no broker."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from outbox_api import ConfigError, Seam, find
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.settings import flush_seconds, producer_settings


def refusal(**kafka: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        KafkaPublisher(KafkaOptions({name.replace("_", "."): value for name, value in kafka.items()}))
    return str(caught.value)


def test_driver_is_found_by_its_name() -> None:
    driver = find(Seam.PUBLISHER, "kafka")
    assert isinstance(driver.create(driver.options()), KafkaPublisher)


def test_options_travel_and_keep_their_secrets() -> None:
    options = KafkaOptions({"sasl.password": "hunter2"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hunter2" not in repr(options)


def test_idempotence_and_defaults() -> None:
    settings = producer_settings({"bootstrap.servers": "b:1"}, client_id="outbox.3")
    assert settings["enable.idempotence"] == "true"
    assert settings["acks"] == "all"
    assert settings["client.id"] == "outbox.3"
    assert int(settings["delivery.timeout.ms"]) < 10_000


@pytest.mark.parametrize(
    ("name", "alias", "value"),
    [
        ("linger.ms", "queue.buffering.max.ms", 7),
        ("delivery.timeout.ms", "message.timeout.ms", 7000),
        ("compression.type", "compression.codec", "zstd"),
    ],
)
def test_user_setting_wins_under_either_name(name: str, alias: str, value: Any) -> None:
    assert producer_settings({name: value})[name] == str(value)
    settings = producer_settings({alias: value})
    assert settings[alias] == str(value)
    assert name not in settings


def test_sender_flushes_unless_the_user_chose_how_long_the_client_lingers() -> None:
    assert flush_seconds({"linger.ms": None}) == int(producer_settings({})["linger.ms"]) / 1000 > 0
    assert flush_seconds({"linger.ms": 0}) == flush_seconds({"queue.buffering.max.ms": 5}) == 0


def test_values_from_yaml_are_passed_on() -> None:
    settings = producer_settings(
        {
            "bootstrap.servers": ["a:1", "b:2"],
            "socket.keepalive.enable": True,
            "linger.ms": 0.5,
            "enable.idempotence": True,
            "acks": -1,
            "ssl.ca.location": None,
        }
    )
    assert settings["bootstrap.servers"] == "a:1,b:2"
    assert settings["socket.keepalive.enable"] == "true"
    assert settings["linger.ms"] == "0.5"
    assert "ssl.ca.location" not in settings
    KafkaPublisher(KafkaOptions(settings))


def test_unknown_property_is_named() -> None:
    assert "unknown Kafka setting 'linger.mss'; see librdkafka's CONFIGURATION.md" in refusal(linger_mss=1)


@pytest.mark.parametrize(
    ("kafka", "why"),
    [
        ({"enable_idempotence": False}, "can reorder or repeat"),
        ({"acks": 1}, "can lose it"),
        ({"request_required_acks": "0"}, "can lose it"),
        ({"partitioner": "random"}, "no order"),
        ({"delivery_report_only_error": True}, "once their delivery is reported"),
        ({"enable_gapless_guarantee": True}, "would end the client for all others"),
        ({"transactional_id": "mine"}, "fence one another"),
        ({"linger_ms": "soon"}, "Invalid value"),
    ],
)
def test_contradiction_is_refused_with_its_reason(kafka: dict[str, Any], why: str) -> None:
    assert why in refusal(**kafka)


def test_what_librdkafka_refuses_late_is_a_configuration_error_too() -> None:
    publisher = KafkaPublisher(KafkaOptions({"max.in.flight": 6}))
    with pytest.raises(ConfigError, match=r"max\.in\.flight"):
        publisher.open("outbox.0")


def test_error_keeps_secrets() -> None:
    publisher = KafkaPublisher(KafkaOptions({"security.protocol": "ssl", "ssl.key.pem": "hunter2"}))
    with pytest.raises(ConfigError, match="PEM") as caught:
        publisher.open("outbox.0")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_scattering_of_the_empty_key_is_mended() -> None:
    assert producer_settings({"partitioner": "consistent_random"})["partitioner"] == "consistent"
    assert producer_settings({"partitioner": "murmur2_random"})["partitioner"] == "murmur2_random"
