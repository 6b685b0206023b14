"""What is particular to the elector on a real etcd: its restart, its users, its numbers."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyetcd
import pytest
from outbox_api import AccessDenied, ConfigError, DriverError, FileText, Level
from outbox_api.election import WatchedLease
from outbox_etcd import EtcdOptions, create
from outbox_etcd.client import _transport
from outbox_etcd.lease import Connector, EtcdLease
from outbox_servers.services import Etcd, EtcdServer
from outbox_testkit.conformance.recording import RecordingCandidate

pytestmark = pytest.mark.slow


class PatientOptions(EtcdOptions):
    """For leases without an elector, which would ask again where a busy machine has no answer in time."""

    request_timeout = 60.0


@pytest.fixture
def session() -> float:
    return 3


@pytest.fixture
def options(etcd_server: Etcd, session: float) -> EtcdOptions:
    return PatientOptions(uuid.uuid4().hex, [etcd_server.endpoint], session_timeout=session)


@pytest.fixture
def leases(options: EtcdOptions) -> Iterator[list[EtcdLease]]:
    connect = Connector(options)
    opened = [connect(), connect()]
    yield opened
    for lease in opened:
        lease.close()


@pytest.mark.parametrize("session", [60])
def test_numbers_grow_and_a_standby_hears_of_a_release_at_once(leases: list[EtcdLease]) -> None:
    leader, standby = leases
    assert isinstance(standby, WatchedLease)
    first = leader.take("leader", 3)
    assert first is not None
    assert standby.take("standby", 3) is None
    assert leader.take("leader", 3) == first
    threading.Timer(0.3, leader.release, ["leader"]).start()
    began = time.monotonic()
    standby.wait(30)
    assert time.monotonic() - began < 10
    second = standby.take("standby", 3)
    assert second is not None
    assert second > first
    leader.release("leader")  # no longer its own
    assert leader.take("leader", 3) is None
    assert standby.take("standby", 3) == second


@pytest.mark.parametrize("session", [6])
def test_a_new_connection_goes_on_with_the_same_number(options: EtcdOptions, leases: list[EtcdLease]) -> None:
    leader, standby = leases
    number = leader.take("leader", 3)
    leader.close()
    again = Connector(options)()
    for _ in range(8):  # longer than the lease: the new connection renews it
        assert again.take("leader", 3) == number
        assert standby.take("standby", 3) is None
        time.sleep(0.8)
    again.close()


@pytest.mark.parametrize("session", [6])
def test_a_key_that_another_connection_has_made_again_is_renewed(
    options: EtcdOptions, leases: list[EtcdLease]
) -> None:
    lease, other = leases
    assert lease.take("leader", 3) is not None
    lease._client.delete(options.key)
    number = other.take("leader", 3)
    assert number is not None
    other.close()
    for _ in range(10):  # longer than the other's lease in etcd, which belongs to the key now
        assert lease.take("leader", 3) == number
        time.sleep(0.8)


def test_a_lease_that_has_run_out_is_taken_with_a_larger_number(leases: list[EtcdLease]) -> None:
    former, standby = leases
    first = former.take("former", 3)
    assert first is not None
    standby.wait(30)
    second = former.take("former", 3)
    assert second is not None
    assert second > first


def test_a_member_that_is_down_is_passed_over(options: EtcdOptions) -> None:
    connect = Connector(replace(options, endpoints=["127.0.0.1:1", *options.endpoints]))
    for _ in range(2):
        lease = connect()
        assert lease.take("me", 3) is not None
        lease.close()


def test_a_leader_is_fenced_when_etcd_goes_and_leads_again_when_it_is_back() -> None:
    candidate = RecordingCandidate()
    with EtcdServer() as server:
        options = EtcdOptions("restart", session_timeout=3, endpoints=[server.endpoint])
        elector = create(options)
        elector.start(candidate)
        candidate.wait(["acquired"])
        server.kill()
        assert elector.lease() < 3, "it cannot be renewed, and ends before the session does"
        candidate.wait(["acquired", "fenced"])
        assert elector.lease() == 0
        server.start()
        candidate.wait(["acquired", "fenced", "acquired"])
        server.pause()
        candidate.wait(["acquired", "fenced", "acquired", "fenced"])
        server.resume()
        candidate.wait(["acquired", "fenced", "acquired", "fenced", "acquired"])
        elector.stop()
        assert candidate.story[5:] == ["revoked"]


@pytest.fixture(scope="module")
def secured() -> Iterator[EtcdServer]:
    """A server with authentication, where the user ``outbox`` may use the keys of the election ``mine``."""
    with EtcdServer() as server:
        host, _, port = server.endpoint.partition(":")
        client: Any = pyetcd.client(host=host, port=int(port), timeout=10)
        stub = pyetcd.etcdrpc.AuthStub(client.channel)
        rpc = pyetcd.etcdrpc
        for user in ("root", "outbox"):
            stub.UserAdd(rpc.AuthUserAddRequest(name=user, password=f"secret-of-{user}"))
            stub.RoleAdd(rpc.AuthRoleAddRequest(name=user))
            stub.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=user, role=user))
        permission = pyetcd.etcdrpc.auth_pb2.Permission(permType=2, key=b"outbox/leader/mine")
        stub.RoleGrantPermission(rpc.AuthRoleGrantPermissionRequest(name="outbox", perm=permission))
        stub.AuthEnable(rpc.AuthEnableRequest())
        client.close()
        yield server


@pytest.mark.parametrize(
    ("group", "user", "password", "cure"),
    [
        ("mine", "outbox", "wrong-secret", "correct user and password"),
        ("mine", None, None, "correct user and password"),
        ("theirs", "outbox", "secret-of-outbox", "grant"),
    ],
)
def test_who_is_refused_is_told_why_without_secrets(
    secured: EtcdServer, group: str, user: str | None, password: str | None, cure: str
) -> None:
    options = EtcdOptions(group, endpoints=[secured.endpoint], user=user, password=password)
    with pytest.raises(AccessDenied, match=cure) as caught:
        create(options).start(RecordingCandidate())
    errors = [finding for finding in create(options).check() if finding.level is Level.ERROR]
    assert errors
    assert all(error.cure for error in errors)
    assert "secret" not in f"{caught.value} {errors} {options}"


def test_who_is_permitted_leads_also_after_a_restart_that_forgets_its_token(secured: EtcdServer) -> None:
    options = EtcdOptions(
        "mine", [secured.endpoint], user="outbox", password="secret-of-outbox", session_timeout=3
    )
    assert [finding for finding in create(options).check() if finding.level is Level.ERROR] == []
    elector, candidate = create(options), RecordingCandidate()
    elector.start(candidate)
    candidate.wait(["acquired"])
    secured.kill()
    candidate.wait(["acquired", "fenced"])
    secured.start()
    candidate.wait(["acquired", "fenced", "acquired"])
    elector.stop()


def test_nobody_there_is_an_error_and_a_finding() -> None:
    options = EtcdOptions("nobody", endpoints=["127.0.0.1:1"])
    with pytest.raises(DriverError, match=r"127\.0\.0\.1:1") as caught:
        create(options).start(RecordingCandidate())
    assert caught.value.retryable
    assert [each.subject for each in create(options).check() if each.level is Level.ERROR] == [
        "etcd 127.0.0.1:1"
    ]


def test_a_session_that_etcd_does_not_grant_is_found(options: EtcdOptions) -> None:
    fraction = replace(options, session_timeout=2.5)
    (finding,) = [each for each in create(fraction).check() if each.subject == "election session"]
    assert finding.level is Level.WARNING
    assert "3s" in finding.cure


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"session_timeout": 1}, "2 s or more"),
        ({"endpoints": []}, "at least one"),
        ({"endpoints": ["http://etcd:2379"]}, "host:port"),
        ({"user": "outbox"}, "set together"),
        ({"client_cert": "cert.pem"}, "set together"),
        ({"client_cert": "cert.pem", "client_key": "key.pem"}, "caCert"),
        ({"ca_cert": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create(EtcdOptions("g", **settings)).start(RecordingCandidate())


def test_a_password_that_changes_costs_no_leadership(secured: EtcdServer, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret-of-outbox\n")
    options = EtcdOptions(
        "mine", [secured.endpoint], user="outbox", password=FileText((password,)), session_timeout=6
    )
    elector, candidate = create(options), RecordingCandidate()
    elector.start(candidate)
    try:
        candidate.wait(["acquired"])
        _change_password(secured, "another-secret")
        password.write_text("another-secret\n")
        time.sleep(options.lease_duration + 1)
        assert candidate.story == ["acquired"]
        assert elector.lease() > 0
        password.unlink()
        with pytest.raises(DriverError, match="cannot read the file") as caught:
            Connector(options)()
        assert caught.value.retryable
    finally:
        elector.stop()
        _change_password(secured, "secret-of-outbox")


def _change_password(server: EtcdServer, password: str) -> None:
    host, _, port = server.endpoint.partition(":")
    client: Any = pyetcd.client(
        host=host, port=int(port), timeout=10, user="root", password="secret-of-root", ca_cert=None
    )
    rpc = pyetcd.etcdrpc
    change = rpc.AuthUserChangePasswordRequest(name="outbox", password=password)
    rpc.AuthStub(client.channel).UserChangePassword(change, metadata=client.metadata)
    client.close()


def test_a_connection_in_clear_to_another_machine_is_warned_of() -> None:
    options = EtcdOptions(leader_group_id="group", endpoints=["localhost:2379", "etcd-1:2379"])
    [finding] = _transport(options)
    assert finding.level is Level.WARNING
    assert "etcd-1 in clear; TLS is off" in finding.message
    assert "localhost" not in finding.message
    assert "set caCert" in finding.cure
    [finding] = _transport(replace(options, ca_cert="ca.pem"))
    assert finding.level is Level.OK
    assert _transport(replace(options, endpoints=["[::1]:2379"])) == []
