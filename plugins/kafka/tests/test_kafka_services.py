"""Services that speak Kafka's protocol and lack a part of it, or take tokens instead of passwords."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    ConfigResource,
)
from outbox_api import ConfigError, Deliveries, DriverError, Finding, Level, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher, topics
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.secured_kafka import SecuredKafka

from .frame_proxy import FrameProxy
from .kafka_access import gather, values
from .test_kafka_checkpoint_topic import create


def end(kafka: KafkaPublisher, topic: str) -> DriverError:
    """Returns why a sender ends, to which records are sent all the time."""
    sender, deadline = kafka.open("outbox.0"), time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            sender.send([MarkedRecord(1, topic, "k", "1")])
            sender.poll(0.1)
    except DriverError as error:
        return error
    finally:
        sender.close(0)
    raise AssertionError("the sender goes on")


def errors(kafka: KafkaPublisher, *, transactional: bool) -> list[Finding]:
    return [each for each in kafka.check(transactional=transactional) if each.level is Level.ERROR]


class Proxied(NamedTuple):
    """A broker behind a proxy, and the settings of clients of the latter."""

    broker: KafkaBroker
    proxy: FrameProxy
    settings: Mapping[str, Any]


@pytest.fixture(scope="module")
def proxied() -> Iterator[Proxied]:
    proxy = FrameProxy(lambda: broker.proxied_port)
    with KafkaBroker(proxy_port=proxy.port) as broker:
        yield Proxied(broker, proxy, {"bootstrap.servers": f"127.0.0.1:{proxy.port}"})
    proxy.close()


def test_brokers_without_idempotence_and_transactions(proxied: Proxied, topic: str) -> None:
    delete_records, init_producer_id = rb"(\0\x15.{5})", rb"\0\x16(.{5})"

    def hide(answer: bytes) -> bytes:
        """Makes another API of the second one in the list of APIs that the broker has."""
        return re.sub(delete_records + init_producer_id, b"\\1\x7f\xff\\2", answer, flags=re.DOTALL)

    kafka = KafkaPublisher(KafkaOptions(proxied.settings))
    kafka.open_transactional(topic).close()  # the log of transactions exists, so a check may ask for one
    proxied.proxy.alter = hide
    error = end(kafka, topic)
    assert "Idempotent producer not supported" in str(error)
    assert not error.retryable
    with pytest.raises(DriverError, match="ransactions not supported") as caught:
        kafka.open_transactional(topic)
    assert not caught.value.retryable
    assert [each.subject for each in errors(kafka, transactional=False)] == ["Kafka idempotence"]
    found = [each.subject for each in errors(kafka, transactional=True)]
    assert found == ["Kafka idempotence", "Kafka transactions"]


def test_compression_that_the_brokers_do_not_take(proxied: Proxied, topic: str) -> None:
    checkpoints, code = f"{topic}-checkpoints", KafkaError.UNSUPPORTED_COMPRESSION_TYPE.to_bytes(2, "big")

    def refuse(answer: bytes) -> bytes:
        """Puts an error where the broker says that it has accepted a batch of one of the topics."""
        for name in (topic.encode(), checkpoints.encode()):
            accepted = bytes([len(name) + 1]) + name + b"\x02" + bytes(4)  # in the first of one partition
            answer = answer.replace(accepted + bytes(2), accepted + code)
        return answer

    proxied.proxy.alter = refuse
    kafka = KafkaPublisher(KafkaOptions(proxied.settings, checkpoints))
    error = end(kafka, topic)
    assert "set compression.type to one that the brokers take" in str(error)
    assert not error.retryable
    create(proxied.broker.bootstrap, checkpoints, "compact")
    with pytest.raises(DriverError, match=r"set compression\.type") as caught:
        kafka.open_transactional(topic)
    assert not caught.value.retryable


def test_producer_that_has_failed_for_good_is_replaced(proxied: Proxied, topic: str) -> None:
    code = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER.to_bytes(2, "big")
    accepted = bytes([len(topic) + 1]) + topic.encode() + b"\x02" + bytes(4)

    def refuse(answer: bytes) -> bytes:
        """Says of the topic's first records that there were others before them: the broker has lost some."""
        return answer.replace(accepted + bytes(2), accepted + code)

    kafka = KafkaPublisher(KafkaOptions(proxied.settings))
    proxied.proxy.alter = refuse
    error = end(kafka, topic)
    assert "sequence" in str(error)
    assert error.retryable
    proxied.proxy.alter = bytes
    record = MarkedRecord(2, topic, "k", "2")
    sender = kafka.open("outbox.0")
    sender.send([record])
    assert gather(sender, 1) == Deliveries(delivered=[record])
    sender.close(1)


@pytest.mark.parametrize(
    ("settings", "left"),
    [(("_SMALL_SEGMENTS", "segment.bytes"), "600000"), (("_CONFIG", "max.message.bytes"), "0")],
)
def test_checkpoint_topic_of_brokers_that_permit_few_settings(
    settings: tuple[str, str],
    left: str,
    monkeypatch: pytest.MonkeyPatch,
    kafka_bootstrap: str,
    topic: str,
) -> None:
    monkeypatch.setattr(topics, settings[0], {**getattr(topics, settings[0]), settings[1]: "-1"})
    name = f"{topic}-checkpoints"
    kafka = KafkaPublisher(KafkaOptions({"bootstrap.servers": kafka_bootstrap}, name))
    with closing(kafka.open_transactional(topic)) as sender:
        assert sender.publish([MarkedRecord(1, topic, "k", "1")], "") == []
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    [config] = admin.describe_configs([resource]).values()
    assert config.result()["cleanup.policy"].value == "compact"
    assert config.result()["min.compaction.lag.ms"].value == left


def token(_config: str | None) -> tuple[str, float]:
    """Makes a token that nobody signs, for the user ``app``; brokers for tests take it."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": "app", "iat": now, "exp": now + 60}
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts]
    return ".".join([*encoded, ""]), now + 60


def failing(_config: str | None) -> tuple[str, float]:
    raise RuntimeError("hunter2")


def signed_in(address: str, function: Callable[..., Any]) -> KafkaOptions:
    return KafkaOptions(
        {
            "bootstrap.servers": address,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": f"{function.__module__}:{function.__name__}",
        }
    )


@pytest.fixture(scope="module")
def bearers() -> Iterator[SecuredKafka]:
    """A broker that takes tokens."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    properties = {
        "listener.name.secured.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.secured.oauthbearer.sasl.jaas.config": f"{module} required;",
        "super.users": "User:ANONYMOUS;User:app",
    }
    with SecuredKafka(properties=properties) as broker:
        yield broker


@pytest.mark.slow
def test_a_function_makes_the_tokens_of_all_clients(bearers: SecuredKafka, topic: str) -> None:
    options = pickle.loads(pickle.dumps(signed_in(bearers.secured, token)))  # as to another process
    kafka = KafkaPublisher(options)
    assert errors(kafka, transactional=True) == []
    sender = kafka.open("outbox.0")
    sender.send([MarkedRecord(1, topic, "k", "1")])
    assert gather(sender, 1).failed == []
    sender.close(5)
    for number in (2, 3):  # the second one reads the first one's checkpoint
        with closing(kafka.open_transactional(topic)) as opened:
            assert (opened.attempt() is None) == (number == 2)
            assert opened.publish([MarkedRecord(number, topic, "k", str(number))], "") == []
    assert values(bearers.bootstrap, topic, 1) == [1, 2, 3]


def test_a_function_that_fails_is_named_without_its_words(
    bearers: SecuredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = KafkaPublisher(signed_in(bearers.secured, failing))
    with caplog.at_level(logging.DEBUG), pytest.raises(DriverError, match="no valid token") as caught:
        kafka.open("outbox.0")
    assert caught.value.retryable
    assert "failing' makes no token: RuntimeError" in caplog.text
    assert "hunter2" not in f"{caplog.text} {caught.value}"


@pytest.mark.parametrize("name", ["nothing.here:token", "json:nothing", "json:__name__", "a b"])
def test_a_function_that_is_not_there_is_refused_at_once(name: str) -> None:
    with pytest.raises(ConfigError, match=r"'oauth_cb' must name a function as package\.module:function"):
        KafkaPublisher(KafkaOptions({"oauth_cb": name}))
