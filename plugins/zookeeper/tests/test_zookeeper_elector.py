"""What is particular to the election on ZooKeeper, on a real server."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from outbox_api import AccessDenied, ConfigError, DriverError, FileText, Level
from outbox_api.election import LeaseElector, SessionLease
from outbox_servers.services import ZooKeeper, ZooKeeperServer
from outbox_testkit.conformance.recording import RecordingCandidate
from outbox_zookeeper import ZooKeeperOptions, create
from outbox_zookeeper.check import _transport
from outbox_zookeeper.client import Client
from outbox_zookeeper.lease import ZooKeeperLease

pytestmark = pytest.mark.slow

SESSION = 3.0
PASSWORD = "pa55-of-the-user"


@pytest.fixture
def options(zookeeper_server: ZooKeeper, topic: str) -> ZooKeeperOptions:
    return ZooKeeperOptions(
        hosts=zookeeper_server.hosts, root="/outbox-test", leader_group_id=topic, session_timeout=SESSION
    )


@pytest.fixture
def own_server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def other(zookeeper_server: ZooKeeper) -> Iterator[Any]:
    """A client that is not ours."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def start() -> Iterator[Callable[[ZooKeeperOptions], tuple[LeaseElector, RecordingCandidate]]]:
    started: list[LeaseElector] = []

    def begin(options: ZooKeeperOptions) -> tuple[LeaseElector, RecordingCandidate]:
        elector, candidate = create(options), RecordingCandidate()
        elector.start(candidate)
        started.append(elector)
        return elector, candidate

    yield begin
    for elector in started:
        elector.stop()


def test_numbers_grow_with_each_holder_and_stay_while_it_renews(options: ZooKeeperOptions) -> None:
    one, two = ZooKeeperLease(options), ZooKeeperLease(options)
    try:
        assert isinstance(one, SessionLease)
        first = one.take("one", SESSION)
        assert first is not None
        assert two.take("two", SESSION) is None
        assert [one.take("one", SESSION) for _ in range(3)] == [first] * 3
        one.release("one")
        one.release("one")
        two.wait(SESSION)
        second = two.take("two", SESSION)
        assert second is not None
        assert second > first
        assert one.take("one", SESSION) is None
        two.release("two")
        one.wait(SESSION)
        third = one.take("one", SESSION)
        assert third is not None
        assert third > second
    finally:
        one.close()
        two.close()


def test_a_watch_wakes_a_standby_at_once_and_renewals_do_not(options: ZooKeeperOptions) -> None:
    one, two = ZooKeeperLease(options), ZooKeeperLease(options)
    try:
        one.take("one", SESSION)
        assert two.take("two", SESSION) is None
        for _ in range(3):
            one.take("one", SESSION)
        began = time.monotonic()
        two.wait(0.3)
        assert time.monotonic() - began > 0.29
        one.close()
        began = time.monotonic()
        two.wait(120)
        assert time.monotonic() - began < 100
        assert two.take("two", SESSION) is not None
    finally:
        one.close()
        two.close()


def test_a_deleted_node_ends_the_leadership_and_starts_another(
    options: ZooKeeperOptions,
    other: Any,
    start: Callable[[ZooKeeperOptions], tuple[LeaseElector, RecordingCandidate]],
) -> None:
    _, candidate = start(options)
    candidate.wait(["acquired"])
    other.delete(f"{options.election}/leader")
    candidate.wait(["acquired", "fenced", "acquired"])


def test_a_node_that_another_process_has_made_is_not_taken_over(
    options: ZooKeeperOptions, other: Any
) -> None:
    lease = ZooKeeperLease(options)
    try:
        assert lease.take("one", SESSION) is not None
        other.delete(f"{options.election}/leader")
        other.create(f"{options.election}/leader", b"other", ephemeral=True)
        assert lease.take("one", SESSION) is None
        assert other.get(f"{options.election}/leader")[0] == b"other"
    finally:
        lease.close()


def test_a_node_that_another_process_makes_during_a_renewal_is_no_leadership(
    options: ZooKeeperOptions, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = ZooKeeperLease(options)
    ask = lease._client.ask

    def be_late(what: str, path: str, *parts: Any, **more: Any) -> Any:
        if what == "set":
            other.delete(path)
            other.create(path, b"other", ephemeral=True)
        return ask(what, path, *parts, **more)

    try:
        assert lease.take("one", SESSION) is not None
        monkeypatch.setattr(lease._client, "ask", be_late)
        assert lease.take("one", SESSION) is None
    finally:
        lease.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restarted_server_fences_in_time_and_leadership_returns_by_itself(
    own_server: ZooKeeperServer,
    options: ZooKeeperOptions,
    start: Callable[[ZooKeeperOptions], tuple[LeaseElector, RecordingCandidate]],
    end: str,
) -> None:
    elector, candidate = start(replace(options, hosts=own_server.hosts))
    candidate.wait(["acquired"])
    getattr(own_server, end)()
    assert elector.lease() < SESSION, "it cannot be renewed, and ends before the session does"
    candidate.wait(["acquired", "fenced"])
    assert elector.lease() == 0
    own_server.start()
    candidate.wait(["acquired", "fenced", "acquired"])


def test_a_server_that_is_silent_for_a_moment_costs_no_leadership(
    own_server: ZooKeeperServer,
    options: ZooKeeperOptions,
    start: Callable[[ZooKeeperOptions], tuple[LeaseElector, RecordingCandidate]],
) -> None:
    slow = replace(options, hosts=own_server.hosts, session_timeout=6.0)
    _, candidate = start(slow)
    candidate.wait(["acquired"])
    own_server.pause()
    time.sleep(slow.request_timeout + 0.5)  # so that a confirmation fails
    own_server.resume()
    time.sleep(1.5 * slow.lease_duration)
    assert candidate.story == ["acquired"]


def test_wrong_credentials_are_refused_without_a_word_of_them(
    options: ZooKeeperOptions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    mine = replace(options, user="owner", password=PASSWORD)
    owner = ZooKeeperLease(mine)
    try:
        assert owner.take("one", SESSION) is not None
        for stranger in (replace(mine, password="wrong-pa55"), options):
            # Newer servers refuse at once, older ones when the node is used.
            with (
                pytest.raises(AccessDenied, match="NoAuthError") as caught,
                closing(ZooKeeperLease(stranger)) as intruder,
            ):
                intruder.take("two", SESSION)
            assert not caught.value.retryable
            assert "pa55" not in str(caught.value)
            found = [each for each in create(stranger).check() if each.level is Level.ERROR]
            assert [each.subject for each in found] == ["election node"]
            assert "grant" in found[0].cure
        assert PASSWORD not in repr(mine)
        assert "pa55" not in caplog.text
        assert [
            each
            for each in create(replace(mine, heartbeat_timeout=1.0)).check()
            if each.level is not Level.OK
        ] == []
    finally:
        owner.close()


def test_a_session_that_the_server_shortens_is_an_error(options: ZooKeeperOptions) -> None:
    long = replace(options, session_timeout=90.0)
    with pytest.raises(ConfigError, match="maxSessionTimeout"):
        create(long).start(RecordingCandidate())
    found = {each.subject: each for each in create(long).check()}
    assert found["election session"].level is Level.ERROR


def test_a_session_that_the_server_lengthens_is_a_warning(options: ZooKeeperOptions) -> None:
    found = {each.subject: each for each in create(replace(options, session_timeout=0.1)).check()}
    assert found["election session"].level is Level.WARNING


def test_an_unreachable_server_is_found_and_can_be_retried(
    options: ZooKeeperOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_zookeeper.client.CONNECT_TIMEOUT", 0.5)
    elector = create(replace(options, hosts="127.0.0.1:1"))
    with pytest.raises(DriverError, match=r"127\.0\.0\.1:1") as caught:
        elector.start(RecordingCandidate())
    assert caught.value.retryable
    found = {each.subject: each for each in elector.check()}
    assert found["ZooKeeper"].level is Level.ERROR


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"root": "outbox"}, "root"),
        ({"user": "me"}, "password"),
        ({"authentication": "sasl"}, "sasl"),
        ({"ca_file": "ca.pem"}, "tls"),
        ({"session_timeout": 0.0}, "longer than 0"),
    ],
)
def test_contradictions_are_refused(options: ZooKeeperOptions, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        create(replace(options, **wrong))


def test_a_connection_in_clear_to_another_machine_is_warned_of() -> None:
    options = ZooKeeperOptions("localhost:2181,zookeeper-1:2181/chroot", leader_group_id="group")
    [finding] = _transport(options)
    assert finding.level is Level.WARNING
    assert "zookeeper-1 in clear; tls is false" in finding.message
    assert "localhost" not in finding.message
    assert "set tls to true" in finding.cure
    [finding] = _transport(replace(options, tls=True))
    assert finding.level is Level.OK
    assert _transport(replace(options, hosts="[::1]:2181,127.0.0.1:2182")) == []


def test_a_session_after_a_refusal_uses_the_present_password(
    options: ZooKeeperOptions, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("first\n")
    own = replace(options, root=f"/{options.leader_group_id}", user="owner", password=FileText((password,)))
    client = Client(own)
    try:
        client.ask("ensure_path", own.election, acl=client.acl)
        password.write_text("second\n")
        client.stop()  # as kazoo does after a refusal
        client.recover()
        _until_connected(client)
        with pytest.raises(AccessDenied):  # digest: another password makes another owner
            client.ask("get_children", own.election)
        password.unlink()
        client.stop()
        client.recover()
        _until_connected(client)
    finally:
        client.stop()


def _until_connected(client: Client) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            return client.check_connected()
        except DriverError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
