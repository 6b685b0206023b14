"""`outbox partitions add` on real servers: what it refuses, and what becomes of the pause."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    NewPartitions,
)
from outbox_api import AccessDenied, ConfigError, DriverError, OutboxError, Seam
from outbox_core import operations
from outbox_core.config import load, parse

from .cli_runner import changed, configure, harvester, outbox, told
from .fakes import made

BEFORE, AFTER = 6, 12

Call = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str, topic: str) -> Path:
    path = configure(tmp_path, postgres_dsn, kafka_bootstrap)
    told(path, "init", "-t", topic, "--partitions", str(BEFORE))
    return path


@pytest.fixture
def add(file: Path, topic: str) -> Call:
    def add(*more: str, count: int = AFTER, of: Path = file) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            told(of, "partitions", "add", topic, str(count), "--yes", "--json", *more)
        )
        return found

    return add


@pytest.fixture
def refused(file: Path, topic: str) -> Call:
    def refused(*more: str, count: int = AFTER, name: str = topic) -> str:
        done = outbox(file, "--debug", "partitions", "add", name, str(count), "--yes", *more)
        assert done.returncode == 1, done.stderr
        return " ".join(done.stderr.split())

    return refused


def commit(bootstrap: str, topic: str, group: str, offset: int) -> None:
    """Has a group read a partition up to an offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(5):
        producer.produce(topic, b"value", b"key", partition=0)
    producer.flush()


def pauses(file: Path) -> list[str]:
    return [each["topic"] for each in json.loads(told(file, "status", "--json"))["pauses"]]


def test_partitions_are_added_and_unnamed_groups_are_told(
    file: Path, add: Call, kafka_bootstrap: str, topic: str
) -> None:
    write(kafka_bootstrap, topic)
    commit(kafka_bootstrap, topic, f"{topic}-all", 5)
    commit(kafka_bootstrap, topic, f"{topic}-some", 3)
    with harvester(file):
        done = add("--group", f"{topic}-all")
    assert (done["before"], done["partitions"], done["outboxes"]) == (BEFORE, AFTER, ["outbox"])
    assert done["unnamed"] == [f"{topic}-some"]
    assert done["paused_seconds"] > 0
    assert pauses(file) == []
    entries = json.loads(told(file, "journal", "--json"))["entries"]
    assert [each["verb"] for each in entries] == ["resume", "add-partitions", "pause"]
    assert entries[1]["subject"] == f"topic {topic}, {BEFORE} to {AFTER} partitions"


def test_what_cannot_be_done_is_refused_and_pauses_nothing(file: Path, refused: Call, topic: str) -> None:
    assert "there is no topic 'nowhere'" in refused(name="nowhere")
    assert f"has {BEFORE} partitions already" in refused(count=BEFORE)
    assert f"has {BEFORE} partitions already" in refused(count=BEFORE - 1)
    assert "group 'nobody' has committed no offset" in refused("--group", "nobody")
    told(file, "pause", "--topic", topic, "--reason", "maintenance", "--yes")
    assert "(maintenance); end that first" in refused()
    told(file, "resume", "--topic", topic)
    assert pauses(file) == []


def test_a_publisher_without_partitions_is_refused_and_so_are_several() -> None:
    box = parse("harvest: {}", "f.yaml", {}).harvest
    other = replace(box, publisher=made(Seam.PUBLISHER, object()))
    with pytest.raises(OutboxError, match="publisher 'memory' cannot add partitions"):
        operations.plan_partitions([other], operations.Wish("orders", AFTER))
    with pytest.raises(ConfigError, match="name one with --outbox"):
        operations.plan_partitions([box, other], operations.Wish("orders", AFTER))


def test_consumers_that_are_too_late_leave_the_topic_as_it_was(
    file: Path, refused: Call, kafka_bootstrap: str, topic: str
) -> None:
    write(kafka_bootstrap, topic)
    commit(kafka_bootstrap, topic, topic, 3)
    said = refused("--group", topic, "--wait", "1s")
    assert f"group '{topic}' has about 2 records to read" in said
    assert "resumed: nothing has changed" in said
    assert pauses(file) == []
    assert "the pause stays" in refused("--group", topic, "--wait", "1s", "--keep-paused")
    assert pauses(file) == [topic]
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    assert len(admin.list_topics(topic).topics[topic].partitions) == BEFORE


def test_the_same_command_goes_on_where_it_was_killed(
    file: Path, add: Call, refused: Call, kafka_bootstrap: str, topic: str
) -> None:
    """It was killed once partitions were added, and before it resumed."""
    told(
        file, "pause", "--topic", topic, "--yes", "--reason", f"'outbox partitions add {topic} {AFTER}' more"
    )
    assert "end that first" in refused(count=AFTER + 1)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_partitions([NewPartitions(topic, AFTER)])[topic].result(60)
    done = add("--group", "whoever")
    assert (done["before"], done["partitions"]) == (AFTER, AFTER)
    assert pauses(file) == []
    assert "partitions already" in refused()


def test_with_transforms_the_whole_outbox_is_paused_or_what_is_said(
    file: Path, add: Call, kafka_bootstrap: str, topic: str
) -> None:
    routed = changed(file, transform=[{"driver": "topic", "to": topic}])
    add(of=routed)
    add("--outbox-topic", "orders", "--outbox-topic", "payments", count=AFTER + 1, of=routed)
    entries = json.loads(told(file, "journal", "--json"))["entries"]
    paused = [each["subject"] for each in reversed(entries) if each["verb"] == "pause"]
    assert paused == ["the whole outbox", "topic orders", "topic payments"]


def planned(file: Path, topic: str, *groups: str) -> operations.Plan:
    box = load(file).harvest
    assert box is not None
    return operations.plan_partitions([box], operations.Wish(topic, AFTER, groups))


class Altered:
    """A topic that does something else in one call."""

    def __init__(self, topic: Any, **calls: Call) -> None:
        self._topic = topic
        self.__dict__ |= calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)


def run(plan: operations.Plan, **calls: Call) -> list[str]:
    """Adds partitions to a topic that does something else in some calls; returns what was told."""
    said = list[str]()
    altered = replace(plan, topic=Altered(plan.topic, **calls))
    try:
        watch = operations.Watch(said.append, said.append, lambda _: False, 5.0)
        operations.add_partitions(altered, operations.Operator("me", "cli"), watch)
    except OutboxError as error:
        said.append(str(error))
    return said


def test_a_broker_that_refuses_for_sure_leaves_no_pause(file: Path, topic: str) -> None:
    def refuse(_: int) -> None:
        raise AccessDenied("the user may not alter it")

    def lose(_: int) -> None:
        raise DriverError("no answer", retryable=True)

    plan = planned(file, topic)
    assert run(plan, grow=refuse)[-2:] == ["resumed: nothing has changed", "the user may not alter it"]
    assert pauses(file) == []
    assert "the pause stays" in run(plan, grow=lose)[-2]
    assert pauses(file) == [topic]


def test_a_coordinator_that_moves_is_waited_for(file: Path, kafka_bootstrap: str, topic: str) -> None:
    write(kafka_bootstrap, topic)
    commit(kafka_bootstrap, topic, topic, 5)
    plan, answers = planned(file, topic, topic), iter(["the coordinator moves", ""])

    def unread(*_: object) -> int:
        if said := next(answers):
            raise DriverError(said, retryable=True)
        return 0

    assert "the coordinator moves" in run(plan, unread=unread)
    assert plan.topic.count() == AFTER


def test_the_pause_of_somebody_else_is_never_ended(file: Path, topic: str) -> None:
    plan = planned(file, topic)

    def pause(reason: str) -> None:
        told(file, "pause", "--topic", topic, "--reason", reason, "--yes")

    pause("while it was confirmed")
    assert "(while it was confirmed); end that first" in run(plan)[-1]
    assert pauses(file) == [topic]
    told(file, "resume", "--topic", topic)

    def grow(count: int) -> None:
        pause("while it waited")
        plan.topic.grow(count)

    assert "stays paused" in run(plan, grow=grow)[-1]
    assert pauses(file) == [topic]
    assert plan.topic.count() == AFTER


def test_the_longest_topic_is_paused_by_a_name_that_is_known_again(file: Path, topic: str) -> None:
    longest = topic.ljust(249, "x")
    told(file, "init", "-t", longest, "--partitions", str(BEFORE))
    plan = planned(file, longest)

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, grow=killed)
    assert pauses(file) == [longest]
    assert planned(file, longest).goes_on
