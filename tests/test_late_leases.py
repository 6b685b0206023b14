"""Requests about a lease that reach the coordinator after their client has given them up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import DriverError
from outbox_api.election import WatchedLease
from outbox_etcd import EtcdOptions
from outbox_etcd.client import translated
from outbox_etcd.lease import Connector
from outbox_servers.late_proxy import LateProxy, Match
from outbox_servers.services import Etcd, ZooKeeper
from outbox_zookeeper import ZooKeeperOptions
from outbox_zookeeper.lease import ZooKeeperLease
from psycopg.conninfo import conninfo_to_dict

from .test_late_statements import _port_of, mysql, postgres

SECONDS = 3.0
"""Of the lease of ``late``; etcd grants no much shorter one."""
LONG = 30.0
"""Of everybody else's: a test on a busy machine is through before it ends."""

_DELETE = (2).to_bytes(4)
"""ZooKeeper's number of the request that deletes a node."""

Connect = Callable[[], Any]


class Election:
    """A lease, and who competes for it.

    Args:
        near: Connects to the coordinator.
        distant: Connects through the proxy.
        proxy: Before the coordinator.
        renewal: Which request prolongs the lease of ``late``.
        attempt: Which one takes it for ``late``.
        end: Which one gives it up.
        release: Gives it up.
        stack: Closes what is opened.
    """

    def __init__(
        self,
        near: Connect,
        distant: Connect,
        proxy: LateProxy,
        renewal: Match,
        *,
        attempt: Match | None = None,
        end: Match | None = None,
        release: Callable[[Any], object] = lambda lease: lease.release("late"),
    ) -> None:
        self.proxy, self.renewal, self.release = proxy, renewal, release
        self.attempt, self.end = attempt or renewal, end or renewal
        self._near, self._distant = near, distant

    def near(self) -> Any:
        """A candidate that reaches the coordinator."""
        return self._near()

    def distant(self) -> Any:
        """A candidate behind the proxy."""
        return self._distant()

    def give_up(self, act: Callable[[], object], match: Match | None = None) -> None:
        """Has a request kept, by default a renewal, of which the client knows nothing more."""
        self.proxy.refuses = True  # also of a client that would go on with its session
        self.proxy.keep(match or self.renewal)
        with suppress(DriverError):
            act()
        assert self.proxy.kept.is_set()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


COORDINATORS = [
    "postgres",
    pytest.param("mysql", marks=pytest.mark.slow),
    pytest.param("mariadb", marks=pytest.mark.slow),
    pytest.param("etcd", marks=pytest.mark.slow),
    pytest.param("zookeeper", marks=pytest.mark.slow),
]


@pytest.fixture(params=COORDINATORS)
def election(request: pytest.FixtureRequest, stack: ExitStack) -> Election:
    if request.param == "etcd":
        return on_etcd(request.getfixturevalue("etcd_server"), stack)
    if request.param == "zookeeper":
        return on_zookeeper(request.getfixturevalue("zookeeper_server"), stack)
    dsn: str = request.getfixturevalue(f"{request.param}_dsn")
    make, port, renewal = mysql, _port_of(dsn), lambda data: data[4:] == b"\x03COMMIT"
    if request.param == "postgres":
        make, port = postgres, str(conninfo_to_dict(dsn)["port"])
        renewal = lambda data: b"late" in data  # noqa: E731 - the holder is a parameter
    make(dsn).create()
    proxy = stack.enter_context(LateProxy(lambda: int(port)))

    def connect(given: int | None = None) -> Any:
        return opened(make(dsn, given).lease(), stack)

    return Election(connect, lambda: connect(proxy.port), proxy, renewal)


def opened(lease: Any, stack: ExitStack) -> Any:
    assert isinstance(lease, WatchedLease)
    stack.callback(lease.close)
    return lease


def on_etcd(server: Etcd, stack: ExitStack) -> Election:
    port = int(server.endpoint.rpartition(":")[2])
    proxy = stack.enter_context(LateProxy(lambda: port))
    name = uuid4().hex

    def connect(endpoint: str, seconds: float) -> Any:
        options = EtcdOptions(leader_group_id=name, endpoints=[endpoint], session_timeout=seconds)
        return opened(Connector(options)(), stack)

    through = f"127.0.0.1:{proxy.port}"
    return Election(
        lambda: connect(server.endpoint, LONG),
        lambda: connect(through, SECONDS),
        proxy,
        bool,  # a keep-alive names no holder, and is the next thing that a leader sends
        attempt=lambda data: b"late" in data,
        release=revoke,
    )


def revoke(lease: Any) -> None:
    """Does what a release on etcd ends with."""
    with translated("etcd"):
        lease._client.revoke_lease(lease._lease)


def on_zookeeper(server: ZooKeeper, stack: ExitStack) -> Election:
    port = int(server.hosts.rpartition(":")[2])
    proxy = stack.enter_context(LateProxy(lambda: port))
    name = uuid4().hex

    def connect(hosts: str, seconds: float) -> Any:
        options = ZooKeeperOptions(hosts=hosts, leader_group_id=name, session_timeout=seconds)
        return opened(ZooKeeperLease(options), stack)

    through = f"127.0.0.1:{proxy.port}"
    return Election(
        lambda: connect(server.hosts, LONG),
        lambda: connect(through, SECONDS),
        proxy,
        lambda data: b"late" in data,
        end=lambda data: data[8:12] == _DELETE,
    )


def taken(lease: Any, holder: str, lasts: float = LONG) -> tuple[int, float]:
    """Asks for the lease until it is there; returns its number, and how long it took."""
    began = time.monotonic()
    while time.monotonic() < began + 60:
        with suppress(DriverError):  # somebody holds the lock of a statement that is under way
            if (number := lease.take(holder, lasts)) is not None:
                return number, time.monotonic() - began
        time.sleep(0.05)
    raise AssertionError("nobody gets the lease")


def test_a_late_renewal_takes_nothing_from_a_successor(election: Election) -> None:
    leader, successor, third = election.distant(), election.near(), election.near()
    first, _ = taken(leader, "late", SECONDS)
    election.give_up(lambda: leader.take("late", SECONDS))
    second, _ = taken(successor, "successor")
    assert second > first
    election.proxy.deliver()
    assert third.take("third", LONG) is None
    assert successor.take("successor", LONG) == second


def test_a_late_renewal_after_a_release_keeps_others_out_for_a_session_at_most(election: Election) -> None:
    leader, same, successor = election.distant(), election.near(), election.near()
    first, _ = taken(leader, "late", SECONDS)
    election.give_up(lambda: leader.take("late", SECONDS))
    taken(same, "late")  # over another connection
    same.release("late")
    election.proxy.deliver()
    second, seconds = taken(successor, "successor")
    assert second > first
    assert seconds < LONG


def test_a_late_attempt_takes_nothing_from_a_leader(election: Election) -> None:
    late, leader, third = election.distant(), election.near(), election.near()
    election.give_up(lambda: late.take("late", SECONDS), election.attempt)
    number, _ = taken(leader, "leader")
    election.proxy.deliver()
    assert leader.take("leader", LONG) == number
    assert third.take("third", LONG) is None


def test_a_late_release_takes_nothing_from_a_successor(election: Election) -> None:
    leader, successor, third = election.distant(), election.near(), election.near()
    taken(leader, "late", SECONDS)
    election.give_up(lambda: election.release(leader), election.end)
    second, _ = taken(successor, "successor")
    election.proxy.deliver()
    assert third.take("third", LONG) is None
    assert successor.take("successor", LONG) == second
