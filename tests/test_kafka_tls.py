"""TLS to a real broker, of the publisher and of the election: what is verified, and what errors say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from outbox_api import DriverError, Level, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_neli_kafka import NeliElector, NeliOptions
from outbox_servers.certificates import Authority
from outbox_servers.services.secured_kafka import SecuredKafka, TlsListener
from outbox_testkit.conformance.recording import RecordingCandidate

from .harvesters import until

pytestmark = pytest.mark.slow

FAULTS = [
    ("elsewhere", "is for another host name: use a name that it contains in bootstrap.servers"),
    ("expired", "has expired: renew it on the broker"),
    ("stranger", "an unknown authority has signed the certificate of the broker at 127.0.0.1: set ssl.ca"),
    ("mutual", "the broker wants a certificate of this client: set ssl.certificate.location"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    good = authority.issue("good")
    listeners = {
        "good": TlsListener(good),
        "elsewhere": TlsListener(authority.issue("elsewhere", ["example.org"])),
        "expired": TlsListener(authority.issue("expired", expired=True)),
        "stranger": TlsListener(stranger.issue("stranger")),
        "mutual": TlsListener(good, clients=authority.certificate),
    }
    with SecuredKafka(listeners) as running:
        yield running


def refused(attempt: Callable[[], object], says: str) -> None:
    """Fails unless an attempt fails for that reason, at last: a busy machine may not hear of it in time."""

    def said() -> bool:
        with pytest.raises(DriverError) as caught:
            attempt()
        return says in str(caught.value)

    until(said, f"it says '{says}'", 60)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a broker whose certificate is not accepted."""
    monkeypatch.setattr("outbox_kafka.topics._TIMEOUT", 0.7)
    monkeypatch.setattr("outbox_neli_kafka.permissions._TIMEOUT", 0.7)


def settings(broker: SecuredKafka, listener: str, ca: Path, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.encrypted[listener],
        "security.protocol": "ssl",
        "ssl.ca.location": str(ca),
        **{name.replace("_", "."): str(value) for name, value in more.items()},
    }


def test_records_are_published_over_tls(broker: SecuredKafka, authority: Authority, topic: str) -> None:
    kafka = KafkaPublisher(KafkaOptions(settings(broker, "good", authority.certificate)))
    kafka.prepare([topic], 1)
    sender = kafka.open("outbox.0")
    sender.send([MarkedRecord(1, topic, "k", "v")])
    deadline = time.monotonic() + 60
    while not (reports := sender.poll(1)).delivered:
        assert not reports.failed
        assert time.monotonic() < deadline
    sender.close(5)


def test_a_leader_is_elected_over_tls(broker: SecuredKafka, authority: Authority, topic: str) -> None:
    kafka = settings(broker, "good", authority.certificate)
    elector, candidate = NeliElector(NeliOptions(kafka, leader_group_id=topic)), RecordingCandidate()
    elector.start(candidate)
    try:
        candidate.wait(["acquired"])
    finally:
        elector.stop()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("listener", "says"), FAULTS)
def test_an_error_of_the_publisher_names_the_fault(
    broker: SecuredKafka, authority: Authority, topic: str, listener: str, says: str
) -> None:
    kafka = KafkaPublisher(KafkaOptions(settings(broker, listener, authority.certificate)))
    refused(lambda: kafka.prepare([topic], 1), says)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("listener", "says"), FAULTS)
def test_an_error_of_the_election_names_the_fault(
    broker: SecuredKafka, authority: Authority, topic: str, listener: str, says: str
) -> None:
    options = NeliOptions(settings(broker, listener, authority.certificate), leader_group_id=topic)
    refused(lambda: NeliElector(options).start(RecordingCandidate()), says)


@pytest.mark.usefixtures("short")
def test_a_certificate_of_the_client_that_has_expired_is_named(
    broker: SecuredKafka, authority: Authority, topic: str
) -> None:
    expired = authority.issue("client", expired=True)
    files = {"ssl_certificate_location": expired.certificate, "ssl_key_location": expired.key}
    kafka = KafkaPublisher(KafkaOptions(settings(broker, "mutual", authority.certificate, **files)))
    refused(lambda: kafka.prepare([topic], 1), "refuses this client's certificate: renew")


def test_check_warns_of_another_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_kafka.check._TIMEOUT", 0.1)
    monkeypatch.setattr("outbox_neli_kafka.check.TIMEOUT", 0.1)

    def levels(server: str) -> list[tuple[str, Level]]:
        kafka = {"bootstrap.servers": server}
        publisher = KafkaPublisher(KafkaOptions(kafka)).check(transactional=False)
        elector = NeliElector(NeliOptions(kafka, leader_group_id="group")).check()
        found = [*publisher, *elector]
        return [(each.subject, each.level) for each in found if each.subject.endswith("transport")]

    assert levels("127.0.0.1:1") == []
    assert levels("192.0.2.1:1") == [
        ("Kafka transport", Level.WARNING),
        ("election transport", Level.WARNING),
    ]
