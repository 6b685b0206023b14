"""The faults, and the alarms that each of them raises."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import sleep
from typing import Any

from outbox_servers.services import KafkaBroker, PostgresServer

from .site import Site

LARGE = "x" * 2_000_000
"""A value that no broker takes by default."""
PATIENT = {"failures": {"parkAfter": 100_000}}
"""No key is parked."""
LANES = {"limits": {"sendConcurrency": 2, "minMetricsInterval": "1s"}}
CLUSTER = {"affinity": {"driver": "cluster", "clusterID": 1, "clustersCount": 2, "maximumDelay": "1s"}}


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        title: What is done.
        alarms: The alarms that it raises.
        strike: Begins it when it is entered, and ends it when it is left.
        harvest: Settings of the harvesters below ``harvest:``.
    """

    title: str
    alarms: tuple[str, ...]
    strike: Callable[[Site], AbstractContextManager[None]]
    harvest: Mapping[str, Any] = field(default_factory=dict)


def at_once(faults: Sequence[Fault]) -> Fault:
    """Makes one fault of several that do not disturb each other."""

    @contextmanager
    def strike(site: Site) -> Iterator[None]:
        with ExitStack() as stack:
            for each in faults:
                stack.enter_context(each.strike(site))
            yield

    title = ", and ".join(each.title for each in faults)
    return Fault(title, tuple(alarm for each in faults for alarm in each.alarms), strike)


@contextmanager
def kill_all(site: Site) -> Iterator[None]:
    for each in site.harvesters.values():
        each.kill()
        each.wait(60)
    try:
        yield
    finally:
        for name in list(site.harvesters):
            site.start(name)


@contextmanager
def freeze_leader(site: Site) -> Iterator[None]:
    frozen = site.harvesters[site.leader()]
    frozen.send(signal.SIGSTOP)
    try:
        yield
    finally:
        frozen.send(signal.SIGCONT)


@contextmanager
def lead_besides(site: Site) -> Iterator[None]:
    """One of two harvesters is started with an elector of its own, and leads as well."""
    name = next(each for each in site.harvesters if each != site.leader())
    site.harvesters[name].leave()
    site.start(name, elector="static")
    yield
    site.harvesters[name].leave()
    site.start(name)


@contextmanager
def end_leaders(site: Site) -> Iterator[None]:
    """Each leader is told to end, and started again when another one leads."""
    ended = Event()

    def again_and_again() -> None:
        leader = site.leader()
        while not ended.is_set():
            left_at = site.harvesters[leader].send(signal.SIGTERM)
            [standby] = site.harvesters.keys() - {leader}
            site.harvesters[standby].wait_for("leader acquired", 30, left_at)
            site.harvesters[leader].wait(30)
            site.start(leader).wait_for("joined the election", 30)
            leader = standby

    thread = Thread(target=again_and_again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def stop_broker(site: Site) -> Iterator[None]:
    broker = site.servers.kafka
    assert isinstance(broker, KafkaBroker)
    broker.kill()
    try:
        yield
    finally:
        broker.start()


@contextmanager
def stop_database(site: Site) -> Iterator[None]:
    server = site.servers.postgres
    assert isinstance(server, PostgresServer)
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextmanager
def poison(site: Site) -> Iterator[None]:
    site.stash(key="poison-", keys=1, value=LARGE)
    try:
        yield
    finally:
        site.tell("parked", "skip", "poison-0", "--yes")


@contextmanager
def forget_topic(site: Site) -> Iterator[None]:
    site.stash(topic="forgotten", key="blocked-")
    yield
    site.create_topic("forgotten")


@contextmanager
def lower_limit(site: Site) -> Iterator[None]:
    site.create_topic("small", largest_message=1000)
    site.stash(topic="small", key="blocked-", value=secrets.token_hex(5000))
    yield
    site.raise_limit("small", largest_message=100_000)


@contextmanager
def forget_transaction(site: Site) -> Iterator[None]:
    with closing(site.connect()) as forgotten:
        forgotten.autocommit = False
        forgotten.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        forgotten.execute("SELECT count(*) FROM outbox")
        site.stash(20_000, keys=100)
        yield


@contextmanager
def stop_vacuum(site: Site) -> Iterator[None]:
    with site.connect() as connection:
        connection.execute("ALTER TABLE outbox SET (autovacuum_enabled = off)")
        site.stash(40_000, keys=100)
        yield
        connection.execute("ALTER TABLE outbox RESET (autovacuum_enabled)")
        connection.execute("VACUUM outbox")


@contextmanager
def lose_cluster(site: Site) -> Iterator[None]:
    """Records of another cluster arrive, and nobody harvests them there."""
    ended = Event()

    def flow() -> None:
        while not ended.wait(0.3):
            site.stash(key="other-", cluster=2)

    thread = Thread(target=flow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def lock_lane(site: Site) -> Iterator[None]:
    """A forgotten transaction holds a lane's row of the fence."""
    site.leader()  # and so there are such rows
    with closing(site.connect()) as forgotten:
        forgotten.autocommit = False
        held = forgotten.execute("SELECT lane FROM outbox_fence WHERE lane = 1 FOR UPDATE").fetchall()
        assert held == [(1,)]
        yield


@contextmanager
def forget_cluster(site: Site) -> Iterator[None]:
    """Records of a cluster arrive that is not configured."""
    site.stash(3, key="orphan-", cluster=7)
    try:
        yield
    finally:
        with closing(site.connect()) as connection:
            connection.execute("UPDATE outbox SET cluster_id = 1 WHERE cluster_id = 7")


@contextmanager
def forget_pause(site: Site) -> Iterator[None]:
    """An operator pauses a topic, and forgets it."""
    site.tell("pause", "--topic", "forgotten", "--yes")
    try:
        yield
    finally:
        site.tell("resume", "--topic", "forgotten", "--reason", "")


@contextmanager
def add_partitions(site: Site) -> Iterator[None]:
    """Somebody adds partitions to a topic while records flow."""
    topic, ended = f"grown-{secrets.token_hex(4)}", Event()
    site.create_topic(topic)

    def flow() -> None:
        while not ended.wait(0.3):
            site.stash(topic=topic, key="moved-")

    thread = Thread(target=flow, daemon=True)
    thread.start()
    try:
        sleep(5)  # records flow
        site.add_partitions(topic)
        yield
    finally:
        ended.set()
        thread.join()


FAULTS = (
    Fault("all harvesters are killed", ("OutboxNoLeader", "OutboxNoHarvester"), kill_all),
    Fault("the leader is frozen (SIGSTOP)", ("OutboxProcessDown", "OutboxNoStandby"), freeze_leader),
    Fault("a process leads besides the elected one", ("OutboxTwoLeaders",), lead_besides),
    Fault("each leader ends, and is started again", ("OutboxTakeoversOften",), end_leaders),
    Fault("the broker is killed", ("OutboxOldRecords", "OutboxDeliveriesFail"), stop_broker),
    Fault("a topic does not exist, and no key is parked", ("OutboxBlockedKey",), forget_topic, PATIENT),
    Fault("a record is too large for its topic", ("OutboxParkedKeys",), poison),
    Fault("the database is stopped", ("OutboxDatabaseUnreachable",), stop_database),
    Fault("a transaction stays open", ("OutboxOldSnapshot",), forget_transaction),
    Fault("vacuum is switched off", ("OutboxDeadRows",), stop_vacuum),
    Fault(
        "a record is too large, and no key is parked",
        ("OutboxTransactionsAborted",),
        lower_limit,
        {"delivery": "exactly-once", **PATIENT},
    ),
    Fault("another cluster is lost", ("OutboxTakenOver",), lose_cluster, CLUSTER),
    Fault("a lane's row of the fence is locked", ("OutboxSilentLane",), lock_lane, LANES),
    Fault("partitions are added beside the harvester", ("OutboxPartitionsChanged",), add_partitions),
    Fault("a topic is paused, and nobody resumes it", ("OutboxLongPause",), forget_pause),
    Fault("records name a cluster that is not configured", ("OutboxOrphans",), forget_cluster, CLUSTER),
)
