"""Which connections `outbox check` warns of."""

from __future__ import annotations

import pytest
from outbox_api import Level
from outbox_kafka.client.clients import transport_findings

REMOTE = {"bootstrap.servers": "localhost:9092,kafka-1:9092,SASL_SSL://kafka-2"}


@pytest.mark.parametrize(
    ("settings", "named", "cure"),
    [
        ({}, "records cross the network to kafka-1, kafka-2 in clear", "security.protocol to ssl,"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "the password", "security.protocol to sasl_ssl,"),
        (
            {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"},
            "enable.ssl.certificate.verification is false",
            "remove enable.ssl.certificate.verification",
        ),
        (
            {"security.protocol": "SASL_SSL", "ssl.endpoint.identification.algorithm": "none"},
            "ssl.endpoint.identification.algorithm is none",
            "remove ssl.endpoint.identification.algorithm",
        ),
    ],
)
def test_a_connection_that_is_not_safe_is_warned_of(settings: dict[str, str], named: str, cure: str) -> None:
    [finding] = transport_findings(REMOTE | settings, "Kafka transport")
    assert (finding.level, finding.subject) == (Level.WARNING, "Kafka transport")
    assert named in finding.message
    assert cure in finding.cure


def test_a_verified_connection_is_fine() -> None:
    [finding] = transport_findings(REMOTE | {"security.protocol": "sasl_ssl"}, "Kafka transport")
    assert finding.level is Level.OK


@pytest.mark.parametrize(
    "servers", ["localhost:9092", "127.0.0.1", "[::1]:9092", "::1", "localhost:1, 127.0.0.2:2"]
)
def test_connections_within_this_machine_are_not_judged(servers: str) -> None:
    assert transport_findings({"bootstrap.servers": servers}, "Kafka transport") == []


@pytest.mark.parametrize("servers", ["[fe80::1]:9092", "fe80::1", "kafka"])
def test_other_machines_are(servers: str) -> None:
    [finding] = transport_findings({"bootstrap.servers": servers}, "Kafka transport")
    assert finding.level is Level.WARNING
