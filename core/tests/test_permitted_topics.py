"""To which topics an outbox may publish."""

from __future__ import annotations

from dataclasses import replace

import pytest
from outbox_api import ConfigError, MarkedRecord, PermittedTopics, Record
from outbox_core.config import parse
from outbox_core.lanes.plan import Plan
from outbox_core.settings.election import own_topics


def record(number: int, topic: str, fault: str | None = None) -> MarkedRecord:
    return MarkedRecord(number, topic, "k", "v", fault=fault)


def test_all_topics_are_permitted_but_those_of_outbox_itself() -> None:
    topics = PermittedTopics(own={"elected", "outbox.checkpoints"})
    assert not topics.refusal("orders")
    assert not topics.refusal("Elected")
    for own in ("elected", "outbox.checkpoints", "outbox-public.outbox-1f.neli"):
        assert "that outbox itself uses" in topics.refusal(own)
    assert not PermittedTopics().refusal("billing.neli.orders")
    for default in ("outbox.checkpoints", "billing.neli"):
        assert "that outbox itself uses" in PermittedTopics().refusal(default)
    assert "that Kafka itself uses" in PermittedTopics().refusal("__consumer_offsets")


def test_a_pattern_permits_whole_names_in_their_case() -> None:
    topics = PermittedTopics(("orders", "shop.*"))
    assert not topics.refusal("orders")
    assert not topics.refusal("shop.sales")
    for topic in ("order", "orders2", "Orders", "xshop.sales"):
        assert "harvest.topics" in topics.refusal(topic)


def test_a_pattern_permits_no_topic_of_outbox() -> None:
    assert PermittedTopics(("outbox.*",), {"outbox.checkpoints"}).refusal("outbox.checkpoints")


def test_only_records_of_refused_topics_become_faulty() -> None:
    good, bad, faulty = record(1, "orders"), record(2, "hush"), record(3, "hush", "headers differ")
    checked = PermittedTopics(("orders",)).checked([good, bad, faulty])
    assert checked[0] is good
    assert checked[1] == bad._replace(fault=PermittedTopics(("orders",)).refusal("hush"))
    assert checked[2] is faulty


def test_topics_are_read_from_the_configuration() -> None:
    harvest = parse("harvest: {topics: [orders, 'shop.*']}", "f.yaml", {}).harvest
    assert harvest.topics == ("orders", "shop.*")
    assert parse("harvest: {}", "f.yaml", {}).harvest.topics == ("*",)
    for empty in ("[]", "['']"):
        with pytest.raises(ConfigError, match="topics names no topic"):
            parse(f"harvest: {{topics: {empty}}}", "f.yaml", {})


def test_the_topics_of_outbox_are_those_of_election_and_checkpoints() -> None:
    harvest = parse(
        "harvest: {leaderTopic: lead, publisher: {driver: kafka, checkpointTopic: done}}", "f.yaml", {}
    )
    settings = harvest.harvest
    assert own_topics(settings.elector, settings.publisher) == {"lead", "done"}
    static = replace(settings.elector, options=object())
    assert own_topics(static, settings.publisher) == {"done"}


def test_no_outbox_publishes_to_topics_that_another_one_of_the_file_uses() -> None:
    settings = parse(
        """
        harvest: {delivery: exactly-once}
        outboxes:
          a: {leaderTopic: elected-a, publisher: {driver: kafka, checkpointTopic: done-a}}
          b: {dataSource: host=b, publisher: {driver: kafka, checkpointTopic: done-b}}
          c: {outboxTable: "tenant_*.outbox", publisher: {driver: kafka, checkpointTopic: done-c}}
        """,
        "f.yaml",
        {},
    )
    for outbox in (*settings.outboxes, settings.templates[0].settings_for("tenant_1.outbox")):
        topics = Plan.of(outbox, outbox.elector, 1, None, ()).topics
        assert not topics.refusal("orders")
        for own in ("elected-a", "done-a", "done-b", "done-c"):
            assert "that outbox itself uses" in topics.refusal(own), outbox.title


def test_a_stasher_has_the_bounds_of_the_configuration() -> None:
    text = "harvest: {topics: [orders], producerKafkaConfig: {message.max.bytes: 5000}, leaderTopic: lead}"
    bounds = parse(text, "f.yaml", {}).harvest.bounds
    assert bounds.max_bytes == 5000
    assert "harvest.topics" in bounds.refusal(Record("sales", "k"))
    assert "outbox itself uses" in bounds.refusal(Record("lead", "k"))
    assert not bounds.refusal(Record("orders", "k", "v" * 4000))
    assert "MSG_SIZE_TOO_LARGE" in bounds.refusal(Record("orders", "k", "v" * 5000))
    assert parse("harvest: {}", "f.yaml", {}).harvest.bounds.max_bytes == 1_000_000
