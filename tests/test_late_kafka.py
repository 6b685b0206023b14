"""Requests that reach Kafka after their client has repeated them, or has gone: records, and the election."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    NewTopic,
)
from outbox_api import MarkedRecord, Sender
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_neli_kafka import NeliElector, NeliOptions
from outbox_servers.late_proxy import LateProxy, kafka_length, kafka_requests
from outbox_servers.services.kafka import KafkaBroker
from outbox_testkit.conformance.recording import RecordingCandidate

PRODUCE, OFFSET_COMMIT, JOIN, HEARTBEAT, LEAVE, SYNC = 0, 8, 11, 12, 13, 14
"""Kafka's numbers of requests."""
SESSION = 6.0


class Site:
    """A broker, and a proxy before it."""

    def __init__(self, stack: ExitStack) -> None:
        self.proxy = stack.enter_context(LateProxy(lambda: self.broker.proxied_port, kafka_length))
        self.broker = KafkaBroker(proxy_port=self.proxy.port)
        stack.enter_context(self.broker)
        self.through = f"127.0.0.1:{self.proxy.port}"

    def publisher(self, process: str, *, direct: bool = False) -> KafkaPublisher:
        """Returns a publisher as a process has it: no two share producers."""
        bootstrap = self.broker.bootstrap if direct else self.through
        return KafkaPublisher(KafkaOptions({"bootstrap.servers": bootstrap, "client.id": process}))

    def arrived(self, topic: str) -> list[int]:
        """Returns the numbers of the topic's records, in their order."""
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": uuid4().hex})
        partition = TopicPartition(topic, 0, 0)
        _, end = reader.get_watermark_offsets(partition, timeout=20)
        reader.assign([partition])
        messages: list[Message] = []
        until = time.monotonic() + 60
        while len(messages) < end and time.monotonic() < until:
            messages += reader.consume(end - len(messages), timeout=0.5)
        reader.close()
        return [int(message.value() or b"") for message in messages]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack)


def record(topic: str, number: int) -> MarkedRecord:
    return MarkedRecord(number, topic, "k", str(number))


def deliver(sender: Sender, *records: MarkedRecord) -> None:
    """Sends records one after the other, and waits for each."""
    for each in records:
        sender.send([each])
        until = time.monotonic() + 60
        while not (reports := sender.poll(1.0)).delivered:
            assert time.monotonic() < until
            if reports.failed:
                sender.send([each])


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True], ids=["same broker", "restarted broker"])
def test_a_second_copy_of_what_was_acknowledged_is_refused_after_its_producer_has_ended(
    site: Site, topic: str, restarted: bool
) -> None:
    former = site.publisher("former")
    former.prepare([topic], 1)
    sender = former.open("outbox.0")
    deliver(sender, record(topic, 1))
    site.proxy.keep(kafka_requests(PRODUCE))
    deliver(sender, record(topic, 2))
    assert site.proxy.kept.is_set(), "it was sent twice"
    sender.close(5)
    successor = site.publisher("successor", direct=True).open("outbox.0")
    deliver(successor, record(topic, 3), record(topic, 4))
    if restarted:
        successor.close(5)
        site.broker.kill()
        site.broker.start()
    assert site.proxy.deliver() or restarted
    if not restarted:
        successor.close(5)
    assert site.arrived(topic) == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_topic_that_was_made_again_takes_a_record_of_the_former_one(site: Site, topic: str) -> None:
    """A limit, as above: the request names the topic, and the broker knows the producer no more."""
    former = site.publisher("former")
    former.prepare([topic], 1)
    sender = former.open("outbox.0")
    deliver(sender, record(topic, 1))
    site.proxy.keep(kafka_requests(PRODUCE))
    deliver(sender, record(topic, 2))
    sender.close(5)
    remake(site, topic)
    successor = site.publisher("successor", direct=True).open("outbox.0")
    deliver(successor, record(topic, 3), record(topic, 4))
    site.proxy.deliver()
    successor.close(5)
    assert site.arrived(topic) == [3, 4, 2]


def remake(site: Site, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": site.broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    until = time.monotonic() + 60
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < until
    while True:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        except KafkaException:  # it is being deleted
            assert time.monotonic() < until
        else:
            return


@pytest.mark.slow
def test_what_a_process_has_left_in_the_network_arrives_as_one_stale_copy(site: Site, topic: str) -> None:
    """A limit, not a promise: the broker cannot tell a producer that has ended from one that is slow."""
    former = site.publisher("former")
    former.prepare([topic], 1)
    sender = former.open("outbox.0")
    deliver(sender, record(topic, 1))
    site.proxy.refuses = True
    site.proxy.keep(kafka_requests(PRODUCE))
    sender.send([record(topic, 2)])
    assert site.proxy.kept.wait(30)
    sender.close(0)
    site.proxy.refuses = False
    successor = site.publisher("successor", direct=True).open("outbox.0")
    deliver(successor, record(topic, 2), record(topic, 3))
    site.proxy.deliver()
    deliver(successor, record(topic, 4))
    successor.close(5)
    assert site.arrived(topic) == [1, 2, 3, 2, 4]


class Election:
    """Two candidates of one group, of which the first is behind the proxy."""

    def __init__(self, site: Site, group: str) -> None:
        self._site, self._group = site, group
        self.first, self.second = RecordingCandidate(), RecordingCandidate()
        self.leader, self.standby = self._elector(site.through), self._elector(site.broker.bootstrap)

    def _elector(self, bootstrap: str) -> NeliElector:
        kafka = {"bootstrap.servers": bootstrap}
        options = NeliOptions(
            kafka, leader_group_id=self._group, session_timeout=SESSION, heartbeat_timeout=3
        )
        return NeliElector(options)

    def hand_over(self) -> None:
        """Has the first leave, and waits until the second leads."""
        self.standby.start(self.second)
        self.leader.stop()
        self.second.wait(["acquired"], 60)

    def assert_the_second_leads(self) -> None:
        """Looks for longer than a session."""
        until = time.monotonic() + SESSION + 1
        while time.monotonic() < until:
            assert self.standby.lease() > 0
            time.sleep(0.05)
        assert self.second.story == ["acquired"]


@pytest.fixture
def election(site: Site, topic: str) -> Iterator[Election]:
    made = Election(site, topic)
    yield made
    made.leader.stop()
    made.standby.stop()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [JOIN, SYNC, HEARTBEAT, OFFSET_COMMIT, LEAVE])
def test_a_late_request_of_a_member_that_has_left_changes_no_leader(
    site: Site, election: Election, kind: int
) -> None:
    at_start = kind in {JOIN, SYNC}
    if at_start:
        site.proxy.keep(kafka_requests(kind))
    election.leader.start(election.first)
    election.first.wait(["acquired"], 60)
    if not at_start:
        site.proxy.keep(kafka_requests(kind))
    if kind != LEAVE:
        assert site.proxy.kept.wait(30)
    election.hand_over()
    assert site.proxy.kept.is_set()
    site.proxy.deliver()
    election.assert_the_second_leads()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [JOIN, SYNC, HEARTBEAT, OFFSET_COMMIT])
def test_a_late_request_of_a_leader_s_own_costs_a_new_election_at_most(
    site: Site, election: Election, kind: int
) -> None:
    at_start = kind in {JOIN, SYNC}
    if at_start:
        site.proxy.keep(kafka_requests(kind))
    election.leader.start(election.first)
    election.first.wait(["acquired"], 60)
    if not at_start:
        site.proxy.keep(kafka_requests(kind))
        assert site.proxy.kept.wait(30)
        until = time.monotonic() + 60
        while election.leader.lease() < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
    time.sleep(1)
    site.proxy.deliver()
    time.sleep(SESSION + 1)
    until = time.monotonic() + 60
    while election.leader.lease() == 0 or election.first.story[-1] != "acquired":
        assert time.monotonic() < until, election.first.told
        time.sleep(0.05)
    assert election.first.error is None
    # A late join takes the member's place: the group's coordinator knows it by its name.
    # Of the others, the broken connection alone can cost an election where the machine is busy.
    elections = election.first.story.count("acquired")
    assert election.first.story == ["acquired"] + ["fenced", "acquired"] * (elections - 1)
    assert elections in ({2} if kind == JOIN else {1, 2})
