"""Settings that are right one by one and wrong together."""

import pytest
from outbox_core.config import parse
from outbox_core.config.consistency import look
from outbox_sdk import Level

SIX = "producerKafkaConfig: {delivery.timeout.ms: 6000}"


def found(text: str) -> dict[str, Level]:
    return {finding.subject: finding.level for finding in look(parse(text, "f.yaml", {}).harvest)}


def test_the_defaults_fit_together():
    assert found("harvest: {}") == {"limits": Level.OK}


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("producerKafkaConfig: {delivery.timeout.ms: 10000}", "delivery timeout"),
        ("producerKafkaConfig: {message.timeout.ms: 10000}", "delivery timeout"),
        (f"baseKafkaConfig: {{session.timeout.ms: 6000}}, {SIX}", "delivery timeout"),
        (f"elector: {{driver: neli-kafka, sessionTimeout: 6s}}, {SIX}", "delivery timeout"),
        (f"limits: {{queueTimeout: 5s}}, {SIX}", "queue timeout"),
        ("limits: {minPollInterval: 2501ms, maxPollInterval: 3s}", "poll interval"),
        ("limits: {drainInterval: 5s}", "drain interval"),
        ("limits: {maxInFlightRecords: 7, sendConcurrency: 8}", "lanes"),
    ],
)
def test_what_does_not_fit(text: str, subject: str):
    assert found(f"harvest: {{{text}}}") == {subject: Level.WARNING}
    assert all(finding.cure for finding in look(parse(f"harvest: {{{text}}}", "f.yaml", {}).harvest))


def test_what_does_not_exist_yet():
    assert found("harvest: {delivery: exactly-once}") == {"delivery": Level.ERROR}


def test_nothing_is_said_of_times_that_a_driver_does_not_tell():
    assert found("harvest: {elector: static, producerKafkaConfig: {delivery.timeout.ms: 20000}}") == {
        "limits": Level.OK
    }
    assert found("harvest: {producerKafkaConfig: {delivery.timeout.ms: soon}}") == {"limits": Level.OK}
