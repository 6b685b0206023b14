"""Faults of replicated brokers: killed, frozen and restarted, one of three or two.

Kafka can tear a transaction: part of its partitions commit, others abort. Its coordinator needs a decision to
commit in its own log that no other broker has. If it is killed then, and comes back before its session ends,
it sends the commit to partitions, until it is replaced by a broker that knows of no decision, and aborts.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import ClassVar

from outbox_servers.services import KafkaBroker

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .brokers import BROKER_SESSION_SECONDS, LAGGING, THREE, Setup
from .fault import EXACTLY_ONCE, Fault, Strike
from .site import Site

UNDER_WAY_SECONDS = 0.5
"""The time between a round's begin and its fault, so that what the fault hits was begun in its round."""
TRANSACTIONS = "__transaction_state"
FREEZE_SECONDS = 0.8
"""After this time what a follower had asked for before it was frozen has been answered (at most 0.5 s)."""
KILL_SECONDS = (0.4, 0.6)
"""The time from then to the coordinator's end, in which it may decide to commit."""
HELD_SECONDS = 30.0
"""Within this time a transaction is committed."""


class ReplicaFault(Fault):
    """A fault of some of three brokers; it begins when all copies are in sync."""

    setup: ClassVar[Setup] = THREE

    def strike(self, site: Site) -> Strike:
        site.brokers.settle()
        time.sleep(UNDER_WAY_SECONDS)
        at = time.time()
        killed = self.hurt(site)
        facts = {
            "kills": len(killed),
            "killed": [site.brokers.each.index(broker) + 1 for broker in killed],
            "seconds": round(time.time() - at, 2),
        }
        return Strike(at, facts=facts)

    @abstractmethod
    def hurt(self, site: Site) -> Sequence[KafkaBroker]:
        """Ends some brokers, and starts them again; returns these."""


class KillBroker(ReplicaFault):
    name = "broker-at-once"
    title = "SIGKILL of one of three brokers, which is started at once"
    away: ClassVar[float] = 0.0

    def hurt(self, site: Site) -> Sequence[KafkaBroker]:
        broker = site.chance.choice(site.brokers.each)
        broker.kill()
        time.sleep(self.away)
        broker.start()
        return [broker]


class KillBrokerShortly(KillBroker):
    name = "broker-3s"
    title = "SIGKILL of one of three brokers, which is started after 3 s"
    away = 3.0


class KillBrokerForSession(KillBroker):
    name = "broker-session"
    title = "SIGKILL of one of three brokers, which is started after its session has ended (10 s)"
    away = BROKER_SESSION_SECONDS + 1


class KillTwoBrokers(ReplicaFault):
    name = "brokers-two"
    title = "SIGKILL of two of three brokers, which are started at once"

    def hurt(self, site: Site) -> Sequence[KafkaBroker]:
        pair = site.chance.sample(site.brokers.each, 2)
        for broker in pair:
            broker.kill()
        site.brokers.cluster.start()
        return pair


class KillCoordinator(ReplicaFault):
    name = "coordinator"
    title = (
        "SIGKILL of the one of three brokers that coordinates the lanes' transactions (at-least-once: leads a"
        " partition of the topic), which is started at once"
    )

    def hurt(self, site: Site) -> Sequence[KafkaBroker]:
        broker = coordinator(site)
        broker.kill()
        broker.start()
        return [broker]


class FreezeFollowers(ReplicaFault):
    name = "followers-frozen"
    title = (
        "SIGSTOP of the other two brokers, SIGKILL of the coordinator 1.2 to 1.4 s later, SIGCONT, and it is"
        " started at once: this tears transactions"
    )

    def hurt(self, site: Site) -> Sequence[KafkaBroker]:
        broker = coordinator(site)
        with frozen(others(site, broker)):
            time.sleep(FREEZE_SECONDS + site.chance.uniform(*KILL_SECONDS))
            broker.kill()
        broker.start()
        return [broker]


class HoldCommits(ReplicaFault):
    name = "commits-held"
    title = (
        "as before, and the lanes' requests to commit are held back until the other two brokers have been"
        " frozen for 0.8 s: this tears more"
    )
    deliveries = (EXACTLY_ONCE,)

    def hurt(self, site: Site) -> Sequence[KafkaBroker]:
        broker, gate = coordinator(site), site.brokers.gate
        with gate.closed():
            until(lambda: gate.held, "a transaction is committed", HELD_SECONDS)
            with frozen(others(site, broker)):
                time.sleep(FREEZE_SECONDS)
                gate.open()
                time.sleep(KILL_SECONDS[0])
                broker.kill()
        broker.start()
        return [broker]


class LagCopies(KillCoordinator):
    name = "copies-lag"
    title = f"as `{KillCoordinator.name}`, while copies are up to 0.2 s behind"
    setup = LAGGING


class RollBrokers(ReplicaFault):
    name = "brokers-rolled"
    title = "SIGTERM of each of three brokers in turn; it is started, and in sync, before the next"

    def hurt(self, site: Site) -> Sequence[KafkaBroker]:
        for broker in site.brokers.each:
            broker.restart()
            site.brokers.settle()
        return site.brokers.each


def coordinator(site: Site) -> KafkaBroker:
    """Returns the coordinator of the lanes' transactions, or without these the leader of a partition."""
    places = [(TRANSACTIONS, 0)] if site.delivery == EXACTLY_ONCE else []
    places.append((site.shop.topic, site.chance.randrange(site.setup.partitions)))
    for topic, partition in places:
        if broker := site.brokers.leader(topic, partition):
            return broker
    raise AssertionError(f"none of {places} has a leader")


def others(site: Site, broker: KafkaBroker) -> list[KafkaBroker]:
    """Returns the other brokers."""
    return [each for each in site.brokers.each if each is not broker]


@contextmanager
def frozen(brokers: Sequence[KafkaBroker]) -> Iterator[None]:
    """Freezes brokers until the block ends."""
    with ExitStack() as stack:
        for broker in brokers:
            broker.pause()
            stack.callback(broker.resume)
        yield


REPLICA_FAULTS = (
    KillBroker(),
    KillBrokerShortly(),
    KillBrokerForSession(),
    KillTwoBrokers(),
    KillCoordinator(),
    FreezeFollowers(),
    HoldCommits(),
    LagCopies(),
    RollBrokers(),
)
