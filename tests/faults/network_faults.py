"""Faults between the harvesters and their servers: connections cut, slow, or silent."""

from __future__ import annotations

import contextlib
import time

import psutil

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .fault import EXACTLY_ONCE, Fault, Strike
from .host import Power
from .process_faults import END_SECONDS
from .proxy import Proxy, Trap
from .site import Site

DELAY_SECONDS = 0.1
"""The delay in each direction."""
DELAYED_SECONDS = 5.0
DELAYS_SECONDS = 20.0
SPRING_SECONDS = 30.0
"""Within this time at least one connection must be used, and thereby cut."""
COMMIT_SECONDS = 30.0
"""The same for a lane that may be starting."""
SILENT_COMMIT_SESSIONS = 2
"""The silence in session time-outs: longer than the transaction timeout."""


class CutMidStatement(Fault):
    name = "cut-mid-statement"
    title = "every database connection is cut when half of the next message has arrived"
    needs = frozenset({Power.SERVER})
    trap = Trap.HALF

    def strike(self, site: Site) -> Strike:
        proxy = site.to_database
        before, at = proxy.sprung, time.time()
        proxy.set_trap(self.trap)
        until(lambda: proxy.sprung > before, "a connection is used", SPRING_SECONDS)
        time.sleep(0.5)  # for the others
        return Strike(at, facts={"cut": proxy.sprung - before})


class LoseReplies(CutMidStatement):
    name = "lost-replies"
    title = "every database connection is cut after the server has committed, before its reply"
    trap = Trap.REPLY


class CutBroker(Fault):
    name = "cut-broker"
    title = "all connections to the broker are cut, three times"
    times, pause = 3, 0.3

    def strike(self, site: Site) -> Strike:
        at, cut = time.time(), 0
        for _ in range(self.times):
            cut += site.to_kafka.cut()
            time.sleep(self.pause)
        assert cut, "no connection was open"
        return Strike(at, facts={"cut": cut})


class RestartedProxy(CutBroker):
    name = "restarted-proxy"
    title = "ten times, every two seconds, all connections to the broker are cut"
    times, pause = 10, 2.0


class CutCommits(Fault):
    name = "cut-commits"
    title = "each lane's connection to the broker is cut when half of the commit request has arrived"
    deliveries = (EXACTLY_ONCE,)
    trap = Trap.COMMIT

    def strike(self, site: Site) -> Strike:
        at = time.time()
        return Strike(at, facts={"cut": self._trap(site)})

    def _trap(self, site: Site) -> int:
        proxy = site.to_kafka
        before = proxy.sprung

        def sprung() -> bool:
            proxy.set_trap(self.trap)  # also for lanes that are about to connect
            return proxy.sprung > before

        until(sprung, "a transaction is committed", COMMIT_SECONDS)
        time.sleep(0.5)  # for the other lanes
        return proxy.sprung - before


class LoseCommits(CutCommits):
    name = "lost-commits"
    title = "each lane's connection to the broker is cut after the broker has committed, before its reply"
    trap = Trap.COMMITTED


class SilentCommits(CutCommits):
    name = "silent-commits"
    title = "the broker commits, and then sends nothing for two sessions; connections stay open"
    trap = Trap.MUTE

    def strike(self, site: Site) -> Strike:
        at, cut = time.time(), self._trap(site)
        site.to_kafka.silence()
        try:
            time.sleep(SILENT_COMMIT_SESSIONS * site.session)
        finally:
            site.to_kafka.speak()
        return Strike(at, time.time() - at, facts={"cut": cut})


class KillCommitting(CutCommits):
    name = "kill-committing"
    title = "SIGKILL of the leader's processes after the broker has committed, before its reply"
    trap = Trap.MUTE

    def strike(self, site: Site) -> Strike:
        letter, leader = site.chief()
        site.may_end.add(letter)
        cut = self._trap(site)
        at = time.time()
        leader.kill()
        for process in leader.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        until(lambda: not leader.running, "the leader is dead", END_SECONDS)
        return Strike(at, site.session, facts={"leader": leader.name, "cut": cut})


class Slow(Fault):
    def proxy(self, site: Site) -> Proxy:
        raise NotImplementedError

    def strike(self, site: Site) -> Strike:
        proxy, at = self.proxy(site), time.time()
        proxy.delay = DELAY_SECONDS
        try:
            time.sleep(DELAYED_SECONDS)
        finally:
            proxy.delay = 0.0
        return Strike(at, 2 * DELAY_SECONDS)


class SlowDatabase(Slow):
    name = "slow-database"
    title = f"the database's connections are delayed by {DELAY_SECONDS * 1000:.0f} ms each way, for 5 s"
    needs = frozenset({Power.SERVER})

    def proxy(self, site: Site) -> Proxy:
        return site.to_database


class SlowBroker(Slow):
    name = "slow-broker"
    title = f"the broker's connections are delayed by {DELAY_SECONDS * 1000:.0f} ms each way, for 5 s"

    def proxy(self, site: Site) -> Proxy:
        return site.to_kafka


class DelayedBroker(SlowBroker):
    name = "delayed-broker"
    title = "for 20 s all data to and from the broker takes 0.1 to 5 s longer, another time each second"

    def strike(self, site: Site) -> Strike:
        proxy, at = self.proxy(site), time.time()
        try:
            while time.time() < at + DELAYS_SECONDS:
                proxy.delay = site.chance.choice((0.1, 0.3, 1.0, 2.0, 5.0))
                time.sleep(1)
        finally:
            proxy.delay = 0.0
        return Strike(at, 2 * DELAY_SECONDS)


class Silent(Fault):
    sessions = 0.5

    def proxy(self, site: Site) -> Proxy:
        raise NotImplementedError

    def strike(self, site: Site) -> Strike:
        proxy, at = self.proxy(site), time.time()
        proxy.silence()
        try:
            time.sleep(self.sessions * site.session)
        finally:
            proxy.speak()
        return Strike(at, time.time() - at)


class SilentDatabase(Silent):
    name = "silent-database"
    title = "the database sends nothing for half a session; connections stay open"
    needs = frozenset({Power.SERVER})

    def proxy(self, site: Site) -> Proxy:
        return site.to_database


class SilentBroker(Silent):
    name = "silent-broker"
    title = "the broker sends nothing for one and a half sessions; connections stay open"
    sessions = 1.5

    def proxy(self, site: Site) -> Proxy:
        return site.to_kafka


NETWORK_FAULTS = (
    CutMidStatement(),
    LoseReplies(),
    CutBroker(),
    RestartedProxy(),
    CutCommits(),
    LoseCommits(),
    SilentCommits(),
    KillCommitting(),
    SlowDatabase(),
    SlowBroker(),
    DelayedBroker(),
    SilentDatabase(),
    SilentBroker(),
)
