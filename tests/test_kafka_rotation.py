"""The broker's credentials change while records flow: nothing is lost, and the order is kept."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from outbox_api import MarkedRecord
from outbox_api.election import elapsed
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_neli_kafka import NeliElector, NeliOptions
from outbox_servers.certificates import Authority
from outbox_servers.services.secured_kafka import SecuredKafka, TlsListener
from outbox_testkit.conformance.recording import RecordingCandidate
from outbox_testkit.proxy import Proxy

from .harvesters import RUN, Harvester, Measure, until
from .test_sqlite_end_to_end import KEYS, Trial

pytestmark = pytest.mark.slow

REAUTHENTICATION = 2.0
"""Seconds after which the broker asks for a password again."""
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"
"""A request that the broker answers to everybody whom it lets in."""


class Rotation:
    """A broker whose clients' credentials can be changed, and their files.

    Attributes:
        certificate: The file with the certificate of the clients.
        key: The file with its key.
        password: The file with the password.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate, self.key, self.password = (
            folder / name for name in ("client.crt", "client.key", "password")
        )
        self._former, self._next = Authority(folder, "former"), Authority(folder, "next")
        self._probe = self._former.issue("probe")
        self._trusted = folder / "both.pem"
        both = self._former.certificate.read_text() + self._next.certificate.read_text()
        self._trusted.write_text(both)
        self.proxy = Proxy(lambda: int(self.broker.encrypted["mutual"].rpartition(":")[2]))
        listener = TlsListener(self._former.issue("server"), self._trusted, self.proxy.port)
        properties = {
            "listener.name.secured.connections.max.reauth.ms": f"{REAUTHENTICATION * 1000:.0f}",
            "super.users": "User:ANONYMOUS;User:app;User:CN=app",
        }
        self.broker = SecuredKafka({"mutual": listener}, properties)

    def write_password(self, password: str) -> None:
        """Replaces the file at once."""
        new = self._folder / "password.new"
        new.write_text(f"{password}\n")
        new.replace(self.password)

    def change_password(self, password: str) -> None:
        """Lets the broker accept this password only."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("app", credential, password.encode())
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result()

    def write_certificate(self, *, former: bool) -> None:
        """Replaces the files of the client: the key a while after the certificate."""
        issued = (self._former if former else self._next).issue("app")
        for source, target, seconds in (
            (issued.certificate, self.certificate, 0.0 if former else 1.5),
            (issued.key, self.key, 0.0),
        ):
            copy(source, self._folder / "new")
            (self._folder / "new").replace(target)
            time.sleep(seconds)

    def trust(self, *, former: bool) -> None:
        """Lets the broker accept certificates of both authorities, or of the next one alone."""
        name = "listener.name.mutual.ssl.truststore.location"
        trusted = self._trusted if former else self._next.certificate
        entry = ConfigEntry(name, str(trusted), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()
        until(lambda: self._accepts_former() == former, "the broker has read whom it trusts", 60)

    def _accepts_former(self) -> bool:
        context = ssl.create_default_context(cafile=str(self._former.certificate))
        context.load_cert_chain(self._probe.certificate, self._probe.key)
        host, port = self.broker.encrypted["mutual"].split(":")
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            connection.sendall(API_VERSIONS)
            return bool(connection.recv(1))
        return False

    @property
    def by_password(self) -> dict[str, str]:
        return {**self.broker.settings(f"${{file:{self.password}}}"), "sasl.mechanisms": "SCRAM-SHA-256"}

    @property
    def by_certificate(self) -> dict[str, str]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.proxy.port}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(self._former.certificate),
            "ssl.certificate.location": str(self.certificate),
            "ssl.key.location": str(self.key),
        }


@pytest.fixture(scope="module")
def rotation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotation]:
    made = Rotation(tmp_path_factory.mktemp("rotation"))
    with made.broker:
        yield made
    made.proxy.close()


@contextlib.contextmanager
def listening(trial: Trial, seconds: float) -> Iterator[list[float]]:
    """Finds out the longest time within which no record was delivered, until ``seconds`` after the block."""
    found, ended = [0.0], threading.Event()

    def listen() -> None:
        before, since = trial.counts()[1], time.monotonic()
        while not ended.wait(0.02):
            delivered, now = trial.counts()[1], time.monotonic()
            found[0] = max(found[0], now - since)
            if delivered > before:
                before, since = delivered, now

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield found
        time.sleep(seconds)
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def harvesting(trial: Trial) -> Iterator[Harvester]:
    """Runs a harvester while an application writes; afterwards the outbox is empty."""
    trial.tell("init", "--topic", trial.topic, "--partitions", "4")
    harvester = Harvester("only", trial.settings)
    try:
        with trial.writing("4ms"):
            harvester.wait_for("leader acquired", 60)
            trial.wait_for(200)
            yield harvester
            trial.wait_for(200)
        until(lambda: len(set(trial.counts())) == 1, "the outbox is empty", 60)
        harvester.leave()
    finally:
        harvester.close()


def audit(trial: Trial, delivery: str) -> None:
    """Fails if a record was lost, overtaken, or repeated more often than its delivery permits."""
    once = ["--exactly-once", "--isolation", "read_committed"] if delivery == "exactly-once" else []
    (found,) = trial.tell("audit", "--ledger", str(trial.ledger), *once)["audits"]
    assert found["sent"] == trial.counts()[0] > 400
    assert found["repeated"] <= (0 if once else RUN * KEYS)


def test_a_password_changes_while_records_flow(
    rotation: Rotation, tmp_path: Path, topic: str, measure: Measure
) -> None:
    rotation.write_password("first")
    rotation.change_password("first")
    # A lease that outlasts a busy machine: nothing but the password could have the leader elected anew.
    patient = {"driver": "neli-kafka", "sessionTimeout": "60s", "heartbeatTimeout": "30s"}
    trial = Trial(tmp_path, "", topic, elector=patient, baseKafkaConfig=rotation.by_password)
    with harvesting(trial) as harvester:
        with listening(trial, 3 * REAUTHENTICATION) as silence:
            rotation.change_password("second")
            rotation.write_password("second")
        measure("longest silence at a change of the password", silence[0])
        assert harvester.count("leader acquired") == 1
    audit(trial, "at-least-once")
    former = AdminClient({**rotation.by_password, "sasl.password": "first", "log_level": 0})
    with pytest.raises(KafkaException):
        former.list_topics(timeout=5)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_certificate_changes_while_records_flow(
    rotation: Rotation, tmp_path: Path, topic: str, delivery: str, measure: Measure
) -> None:
    rotation.write_certificate(former=True)
    rotation.trust(former=True)
    trial = Trial(tmp_path, "", topic, delivery=delivery, baseKafkaConfig=rotation.by_certificate)
    with harvesting(trial) as harvester:
        with listening(trial, 2) as silence:
            rotation.write_certificate(former=False)
            harvester.wait_for("certificates have changed", 120)
        measure("longest silence at a change of the certificate", silence[0])
        with listening(trial, 3) as silence:
            rotation.trust(former=False)
            rotation.proxy.cut()
        measure("longest silence after all connections were cut", silence[0])
    audit(trial, delivery)


def test_a_leader_uses_a_new_certificate(rotation: Rotation, topic: str) -> None:
    rotation.write_certificate(former=True)
    rotation.trust(former=True)
    options = NeliOptions(
        rotation.by_certificate, leader_group_id=topic, session_timeout=60, heartbeat_timeout=20
    )
    elector, candidate = NeliElector(options), RecordingCandidate()
    elector.start(candidate)
    try:
        candidate.wait(["acquired"])
        rotation.write_certificate(former=False)
        candidate.wait(["acquired", "revoked", "acquired"])
        rotation.trust(former=False)
        rotation.proxy.cut()
        longest = elapsed() + options.lease_duration
        until(lambda: elapsed() + elector.lease() > longest, "the lease is confirmed anew", 60)
    finally:
        elector.stop()


def test_a_certificate_that_the_brokers_do_not_accept_is_not_used(
    rotation: Rotation, tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    rotation.write_certificate(former=True)
    rotation.trust(former=True)
    kafka = KafkaPublisher(KafkaOptions(rotation.by_certificate))
    kafka.prepare([topic], 1)
    sender = kafka.open("outbox.0")
    sender.send([MarkedRecord(1, topic, "k", "v")])
    until(lambda: sender.poll(0.1).delivered, "a record is delivered", 120)
    stranger = Authority(tmp_path, "stranger").issue("app")
    copy(stranger.certificate, rotation.certificate)
    copy(stranger.key, rotation.key)
    until(lambda: [sender.poll(0.1), "are not used yet" in caplog.text][1], "it says so", 120)
    sender.send([MarkedRecord(2, topic, "k", "v")])
    until(lambda: sender.poll(0.1).delivered, "the former certificate is used", 120)
    sender.close(5)
