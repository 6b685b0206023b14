"""One elector and a broker that stops, restarts, refuses, or loses the topic."""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ClusterMetadata,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from outbox_api import ConfigError, DriverError, Level, Seam, find
from outbox_neli_kafka import NeliElector, NeliOptions
from outbox_neli_kafka.check import broker_findings
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.secured_kafka import SecuredKafka
from outbox_testkit.conformance.recording import RecordingCandidate

NOBODY = "127.0.0.1:1"
SESSION = 10.0
"""Seconds: a leader that a busy machine keeps waiting for three of them leads on."""


class BrokenCandidate(RecordingCandidate):
    """A candidate that cannot lead any more once it is ``failing``."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = Event()

    def acquired(self) -> None:
        super().acquired()
        if self.failing.is_set():
            raise RuntimeError("the candidate is broken")


def until(condition: Callable[[], bool], timeout: float, complaint: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.01)


def options(bootstrap: str, group: str, **kafka: object) -> NeliOptions:
    settings = {name.replace("_", "."): value for name, value in kafka.items()}
    return NeliOptions(
        {"bootstrap.servers": bootstrap, **settings}, leader_group_id=group, session_timeout=SESSION
    )


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with SecuredKafka() as broker:
        yield broker


def secured_options(broker: SecuredKafka, group: str, password: str) -> NeliOptions:
    return NeliOptions(broker.settings(password), leader_group_id=group, session_timeout=SESSION)


def wait_for_members(bootstrap: str, group: str, count: int) -> None:
    """Waits until so many candidates are in a group that has settled."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def settled() -> bool:
        found = admin.describe_consumer_groups([group], request_timeout=10)[group].result(60)
        return bool(found.state == ConsumerGroupState.STABLE and len(found.members) == count)

    until(settled, 60)


def test_one_candidate_leads_until_it_is_stopped(kafka_bootstrap: str, topic: str) -> None:
    election = options(kafka_bootstrap, topic)
    elector, candidate = NeliElector(election), RecordingCandidate()
    assert elector.lease() == 0
    elector.start(candidate)
    candidate.wait(["acquired"], 60)
    leases, began = [elector.lease()], time.monotonic()

    def renewals() -> int:
        leases.append(elector.lease())
        return sum(later > earlier for earlier, later in pairwise(leases))

    until(lambda: renewals() == 4, 60)
    # Renewed after about every fifth of the lease duration, and never longer than it.
    assert time.monotonic() - began > election.confirm_interval
    assert min(leases) > 0
    assert max(leases) <= election.lease_duration
    assert [finding for finding in elector.check() if finding.level is not Level.OK] == []
    elector.stop()
    elector.stop()
    assert candidate.story == ["acquired", "revoked"]
    assert elector.lease() == 0


@pytest.mark.slow
def test_leader_is_fenced_when_the_broker_goes_and_leads_again_when_it_is_back(topic: str) -> None:
    with KafkaBroker() as broker:
        election = options(broker.bootstrap, topic)
        elector, candidate = NeliElector(election), RecordingCandidate()
        elector.start(candidate)
        candidate.wait(["acquired"], 60)
        broker.kill()
        assert elector.lease() < election.heartbeat_timeout, "it cannot be renewed, and ends in time"
        candidate.wait(["acquired", "fenced"])
        assert elector.lease() == 0
        broker.start()
        back = time.monotonic()
        regained = candidate.wait(["acquired", "fenced", "acquired"])
        print(f"\nleads again {regained - back:.2f} s after the broker is back")  # noqa: T201 - a figure
        until(lambda: elector.lease() > 1, 60)
        broker.stop()
        asked = time.monotonic()
        elector.stop()
        print(f"stops within {time.monotonic() - asked:.2f} s without a broker")  # noqa: T201 - a figure
        assert time.monotonic() - asked < 30
        assert candidate.story[3:] in (["revoked"], ["fenced"])


@pytest.mark.slow
def test_leader_leads_again_at_once_after_an_outage_that_was_longer_than_its_session(topic: str) -> None:
    with KafkaBroker() as broker:
        election = replace(options(broker.bootstrap, topic), session_timeout=15, heartbeat_timeout=1.5)
        elector, candidate = NeliElector(election), RecordingCandidate()
        standby, other = NeliElector(election), RecordingCandidate()
        elector.start(candidate)
        candidate.wait(["acquired"], 60)
        standby.start(other)
        wait_for_members(broker.bootstrap, topic, 2)
        broker.kill()
        time.sleep(election.session + 1)
        broker.start()
        back = time.monotonic()
        # Kafka knows it by its name. It would wait for a session until its former self has timed out.
        until(lambda: elector.lease() + standby.lease() > 0, 60)
        assert time.monotonic() - back < election.session
        elector.stop()
        standby.stop()


@pytest.mark.slow
def test_leader_leads_again_at_once_when_the_cluster_comes_back_empty(topic: str) -> None:
    with KafkaBroker(auto_create_topics=False) as broker:
        election = replace(options(broker.bootstrap, topic), session_timeout=6, heartbeat_timeout=3)
        elector = NeliElector(election)
        elector.start(RecordingCandidate())
        until(lambda: elector.lease() > 0, 60)
        broker.kill()
        time.sleep(election.session + 2)  # about when the client gives its session up
        shutil.rmtree(broker.folder / "data")
        broker.start()
        back = time.monotonic()
        # Its group is empty as well: the client joins by what it knows of topics, of which there is none.
        until(lambda: elector.lease() > 0, 30)
        print(f"\nsomebody leads {time.monotonic() - back:.2f} s after the broker is back")  # noqa: T201
        elector.stop()


@pytest.mark.slow
def test_member_whose_place_was_taken_takes_it_again(kafka_bootstrap: str, topic: str) -> None:
    elector, candidate = NeliElector(options(kafka_bootstrap, topic)), RecordingCandidate()
    elector.start(candidate)
    candidate.wait(["acquired"], 60)
    assert elector._member is not None
    thief = Consumer({**elector._member._settings, "log_level": 0})
    thief.subscribe([f"{topic}.neli"])
    until(lambda: thief.poll(0.1) is None and candidate.story == ["acquired", "fenced", "acquired"], 60)
    assert elector.lease() > 0
    elector.stop()
    thief.close()


@pytest.mark.slow
def test_stop_does_not_wait_for_a_client_that_does_not_end(
    kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_neli_kafka.leaving.CLOSE_SECONDS", 0.5)
    ended = Event()

    class Hanging:
        """A consumer that closes only when it is told to."""

        def __init__(self, consumer: Consumer) -> None:
            self.consumer = consumer

        def __getattr__(self, name: str) -> object:
            return getattr(self.consumer, name)

        def close(self) -> None:
            ended.wait()
            self.consumer.close()

    elector, candidate = NeliElector(options(kafka_bootstrap, topic)), RecordingCandidate()
    elector.start(candidate)
    candidate.wait(["acquired"], 60)
    others = set(threading.enumerate())
    assert elector._member is not None
    elector._member._consumer = Hanging(elector._member._consumer)  # type: ignore[assignment]
    elector.stop()
    assert candidate.story == ["acquired", "revoked"]
    [closing] = [thread for thread in set(threading.enumerate()) - others if thread.name == "neli-close"]
    ended.set()
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.slow
def test_deleted_topic_is_restored(kafka_bootstrap: str, topic: str) -> None:
    elector, candidate = NeliElector(options(kafka_bootstrap, topic)), RecordingCandidate()
    elector.start(candidate)
    candidate.wait(["acquired"], 60)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})

    def identity() -> str:
        name = f"{topic}.neli"
        try:
            return str(admin.describe_topics(TopicCollection([name]))[name].result().topic_id)
        except KafkaException:  # there is none at the moment
            return ""

    before = identity()
    admin.delete_topics([f"{topic}.neli"])[f"{topic}.neli"].result()
    until(lambda: identity() not in ("", before), 60)
    until(lambda: elector.lease() > 0 and candidate.story[-1] == "acquired", 60, lambda: str(candidate.told))
    elector.stop()


@pytest.mark.slow
def test_nobody_there(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    monkeypatch.setattr("outbox_neli_kafka.permissions._TIMEOUT", 1.0)
    monkeypatch.setattr("outbox_neli_kafka.check.TIMEOUT", 1.0)
    elector, candidate = NeliElector(options(NOBODY, topic)), RecordingCandidate()
    with pytest.raises(DriverError, match=f"cannot reach Kafka at {NOBODY}") as caught:
        elector.start(candidate)
    assert caught.value.retryable
    assert candidate.story == []
    assert [finding.subject for finding in elector.check() if finding.level is Level.ERROR] == [
        "election broker"
    ]
    elector.stop()
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_wrong_password_is_refused_at_the_start(
    secured: SecuredKafka, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    caplog.set_level(logging.DEBUG)
    elector = NeliElector(secured_options(secured, topic, "hunter2"))
    with pytest.raises(DriverError, match="Authentication") as caught:
        elector.start(RecordingCandidate())
    assert not caught.value.retryable
    assert "hunter2" not in f"{caplog.text} {caught.value} {elector.check()}"


def acl(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, literal, "User:app", "*", operation, allow)


def group_acl(group: str) -> AclBinding:
    return acl(ResourceType.GROUP, group, AclOperation.READ)


def topic_acl(group: str) -> AclBinding:
    return acl(ResourceType.TOPIC, f"{group}.neli", AclOperation.ALL)


def grant(broker: SecuredKafka, *acls: AclBinding) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_acls(list(acls)).values():
        future.result()


def withdraw(broker: SecuredKafka, binding: AclBinding) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    where = AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
    [future] = admin.delete_acls([where]).values()
    assert len(future.result()) == 1


def create_election(broker: SecuredKafka, group: str, *acls: AclBinding) -> None:
    """Creates the topic, grants permissions, and waits until both are visible."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(f"{group}.neli", 1)])[f"{group}.neli"].result()
    grant(broker, *acls)
    app = AdminClient(dict(secured_options(broker, group, "right").kafka))
    until(lambda: f"{group}.neli" in app.list_topics(timeout=5).topics, 60)


@pytest.mark.slow
def test_lack_of_permission_is_refused_at_the_start(secured: SecuredKafka, topic: str) -> None:
    elector, candidate = NeliElector(secured_options(secured, topic, "right")), RecordingCandidate()
    with pytest.raises(DriverError, match="cannot create leader topic") as caught:
        elector.start(candidate)
    assert not caught.value.retryable
    findings = {finding.subject: finding for finding in elector.check()}
    assert findings["leader topic"].level is Level.ERROR
    assert (
        f"'{topic}.neli' does not exist or is hidden, and cannot be created"
        in findings["leader topic"].message
    )
    assert findings["leader topic"].cure.startswith("grant CREATE on it")
    create_election(secured, topic, topic_acl(topic))
    with pytest.raises(DriverError, match=f"grant READ on group '{topic}'") as caught:
        elector.start(candidate)
    assert not caught.value.retryable
    assert "GROUP_AUTHORIZATION_FAILED" in str(caught.value)
    assert candidate.story == []
    elector.stop()
    findings = {finding.subject: finding for finding in elector.check()}
    assert findings["leader topic"].level is Level.OK
    assert findings["leader group"].level is Level.ERROR
    assert f"READ on group '{topic}'" in findings["leader group"].cure


@pytest.mark.slow
@pytest.mark.parametrize("withdrawn", [group_acl, topic_acl])
def test_permission_that_comes_back_costs_no_candidate(
    secured: SecuredKafka,
    caplog: pytest.LogCaptureFixture,
    topic: str,
    withdrawn: Callable[[str], AclBinding],
) -> None:
    create_election(secured, topic, group_acl(topic), topic_acl(topic))
    electors = [NeliElector(secured_options(secured, topic, "right")) for _ in range(2)]
    leader, standby = RecordingCandidate(), RecordingCandidate()
    electors[0].start(leader)
    leader.wait(["acquired"])
    electors[1].start(standby)
    wait_for_members(secured.bootstrap, topic, 2)
    withdraw(secured, withdrawn(topic))
    leader.wait(["acquired", "fenced"])
    time.sleep(SESSION)  # not shorter than the session, so that the group has removed both
    advice = f"grant READ on group '{topic}', and READ and DESCRIBE on topic"
    until(lambda: advice in caplog.text, 60)
    grant(secured, withdrawn(topic))
    one_leads = ([[], ["acquired", "fenced", "acquired"]], [["acquired"], ["acquired", "fenced"]])
    until(
        lambda: (
            sum(elector.lease() > 0 for elector in electors) == 1
            and sorted([leader.story, standby.story], key=len) in one_leads
        ),
        60,
        lambda: f"{leader.told} {standby.told}",
    )
    for elector in electors:
        elector.stop()


@pytest.mark.slow
def test_permission_that_stays_away_ends_the_candidacy(secured: SecuredKafka, topic: str) -> None:
    create_election(secured, topic, group_acl(topic), topic_acl(topic))
    election = replace(secured_options(secured, topic, "right"), stop_after=8)
    elector, candidate = NeliElector(election), RecordingCandidate()
    elector.start(candidate)
    candidate.wait(["acquired"], 60)
    withdraw(secured, group_acl(topic))
    candidate.wait(["acquired", "fenced", "failed"])
    assert isinstance(candidate.error, DriverError)
    assert not candidate.error.retryable
    assert f"refused for 8 s; grant READ on group '{topic}'" in str(candidate.error)
    assert "GROUP_AUTHORIZATION_FAILED" in str(candidate.error)
    elector.stop()


def test_broken_candidate_is_told_and_leaves(kafka_bootstrap: str, topic: str) -> None:
    elector, candidate = NeliElector(options(kafka_bootstrap, topic)), BrokenCandidate()
    candidate.failing.set()
    elector.start(candidate)
    candidate.wait(["acquired", "fenced", "failed"], 60)
    assert str(candidate.error) == "the candidate is broken"
    assert elector.lease() == 0
    elector.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.id", "mine"),
        ("group.instance.id", "me"),
        ("group.protocol", "consumer"),
        ("partition.assignment.strategy", "range"),
        ("enable.auto.commit", True),
        ("session.timeout.ms", "soon"),
    ],
)
def test_setting_that_contradicts_the_election_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        NeliElector(NeliOptions({name: value}))


def test_what_the_broker_permits_is_judged() -> None:
    limits = {"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000"}
    judged = [
        broker_findings(limits, NeliOptions(session_timeout=seconds))[0].level for seconds in (5, 6, 1801)
    ]
    assert judged == [Level.ERROR, Level.OK, Level.ERROR]
    [finding] = broker_findings({"group.coordinator.rebalance.protocols": "consumer"}, NeliOptions())
    assert finding.level is Level.ERROR


@pytest.mark.parametrize(
    ("election", "warning"),
    [
        (NeliOptions({"bootstrap.servers": NOBODY}, heartbeat_timeout=20), "has no effect"),
        (NeliOptions({"bootstrap.servers": NOBODY}, heartbeat_timeout=7), "has no effect"),
        (
            NeliOptions({"bootstrap.servers": NOBODY}, min_poll_interval=4),
            "one late confirmation ends leadership",
        ),
        (NeliOptions({"bootstrap.servers": NOBODY, "delivery.timeout.ms": 10_000}), "could still deliver"),
        (NeliOptions({"bootstrap.servers": NOBODY, "heartbeat.interval.ms": 5000}), "a third"),
    ],
)
def test_times_that_do_not_fit_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, election: NeliOptions, warning: str
) -> None:
    monkeypatch.setattr("outbox_neli_kafka.check.TIMEOUT", 0.1)
    [finding] = [each for each in NeliElector(election).check() if each.level is Level.WARNING]
    assert warning in finding.message
    assert finding.cure


@pytest.mark.slow
def test_check_waits_for_a_broker_that_does_not_list_itself_yet(
    kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    asked = []

    class RestartingAdmin(AdminClient):
        def list_topics(self, *arguments: Any, **options: Any) -> ClusterMetadata:
            cluster = super().list_topics(*arguments, **options)
            asked.append(cluster)
            if len(asked) < 3:
                cluster.brokers = {}
            return cluster

    monkeypatch.setattr("outbox_kafka.client.admin.AdminClient", RestartingAdmin)
    findings = {
        finding.subject: finding.level for finding in NeliElector(options(kafka_bootstrap, topic)).check()
    }
    assert findings["election broker"] is Level.OK
    assert findings["election session"] is Level.OK
    assert len(asked) == 3


@pytest.mark.slow
def test_check_says_that_no_broker_is_listed(
    kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    class EmptyAdmin(AdminClient):
        def list_topics(self, *arguments: Any, **options: Any) -> ClusterMetadata:
            cluster = super().list_topics(*arguments, **options)
            cluster.brokers = {}
            return cluster

    monkeypatch.setattr("outbox_kafka.client.admin.AdminClient", EmptyAdmin)
    monkeypatch.setattr("outbox_neli_kafka.check.TIMEOUT", 0.2)
    findings = NeliElector(options(kafka_bootstrap, topic)).check()
    assert [finding.subject for finding in findings if finding.level is Level.ERROR] == ["election broker"]


def test_without_a_group_nobody_is_elected(kafka_bootstrap: str) -> None:
    elector, candidate = (
        NeliElector(NeliOptions({"bootstrap.servers": kafka_bootstrap})),
        RecordingCandidate(),
    )
    with pytest.raises(ConfigError, match="leaderGroupID"):
        elector.start(candidate)
    findings = {finding.subject: finding for finding in elector.check()}
    assert findings["election broker"].level is Level.OK
    assert findings["leader group"].level is Level.WARNING
    assert "leaderGroupID" in findings["leader group"].cure


def test_options_travel_keep_their_secrets_and_name_the_group() -> None:
    driver = find(Seam.ELECTOR, "neli-kafka")
    assert isinstance(driver.create(driver.options()), NeliElector)
    election = NeliOptions({"sasl.password": "hunter2"}, leader_group_id="billing")
    assert pickle.loads(pickle.dumps(election)) == election
    assert "hunter2" not in repr(election)
    assert (election.group, election.topic) == ("billing", "billing.neli")
    assert NeliOptions(leader_topic="t").topic == "t"
    assert NeliOptions({"session.timeout.ms": "20000"}).session == 20
