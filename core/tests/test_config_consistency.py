"""Settings that are valid one by one but do not fit together."""

from dataclasses import replace

import pytest
from outbox_api import Level
from outbox_api.application.registry import Seam
from outbox_core.config import parse
from outbox_core.config.consistency import check_settings
from outbox_core.settings import Choice

SIX = "producerKafkaConfig: {delivery.timeout.ms: 6000}"


def found(text: str) -> dict[str, Level]:
    return {finding.subject: finding.level for finding in check_settings(parse(text, "f.yaml", {}).harvest)}


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
        ("limits: {minPollInterval: 2501ms}", "poll interval"),
        ("limits: {drainInterval: 5s}", "drain interval"),
        ("limits: {maxInFlightRecords: 7, sendConcurrency: 8}", "lanes"),
    ],
)
def test_what_does_not_fit(text: str, subject: str):
    assert found(f"harvest: {{{text}}}") == {subject: Level.WARNING}
    assert all(
        finding.cure for finding in check_settings(parse(f"harvest: {{{text}}}", "f.yaml", {}).harvest)
    )


def test_exactly_once_reminds_of_the_consumers():
    assert found("harvest: {delivery: exactly-once}") == {"delivery": Level.OK, "limits": Level.OK}
    [told, _] = check_settings(parse("harvest: {delivery: exactly-once}", "f.yaml", {}).harvest)
    assert "isolation.level=read_committed" in told.message


@pytest.mark.parametrize(
    ("text", "subjects"),
    [
        ("producerKafkaConfig: {delivery.timeout.ms: 10000}", {"limits"}),
        (f"limits: {{queueTimeout: 5s}}, {SIX}", {"limits"}),
        ("limits: {maxInFlightRecords: 7, sendConcurrency: 8}", {"limits"}),
        ("limits: {drainInterval: 5s}", {"drain interval"}),
    ],
)
def test_what_exactly_once_does_not_care_for(text: str, subjects: set[str]):
    assert found(f"harvest: {{delivery: exactly-once, {text}}}").keys() == subjects | {"delivery"}


def test_exactly_once_ends_where_another_cluster_takes_over():
    settings = parse("harvest: {delivery: exactly-once}", "f.yaml", {}).harvest
    there = replace(settings, affinity=Choice(Seam.AFFINITY, "region", None))
    assert [(finding.subject, finding.level) for finding in check_settings(there)] == [
        ("delivery", Level.OK),
        ("affinity", Level.WARNING),
    ]


def test_nothing_is_said_of_times_that_a_driver_does_not_tell():
    assert found("harvest: {elector: static, producerKafkaConfig: {delivery.timeout.ms: 20000}}") == {
        "limits": Level.OK
    }
    assert found("harvest: {producerKafkaConfig: {delivery.timeout.ms: soon}}") == {"limits": Level.OK}
