"""Faults of what stands between: connections forgotten or ended, a read-only primary, and another primary."""

from __future__ import annotations

import time

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from ..pooler import PgBouncer  # noqa: TID252 - pytest gives tests no absolute name
from .fault import Fault, Strike
from .host import Power
from .site import Site

MET_SECONDS = 30.0
"""Within this time a harvester meets a fault that it cannot avoid."""
READ_ONLY_SECONDS = 3.0
SOON_SECONDS = 1.5
"""The age of a record that is not held up."""
POOLED_CUTS = 3
POOLED_SECONDS = 1.5
"""How long harvesters work through a pooler between two cuts."""
IDLE_SECONDS = 0.03
"""How long a connection may be idle: a short time, because lanes look for rows often."""
IDLE_ENDS_SECONDS = 5.0


class HalfOpen(Fault):
    name = "half-open"
    title = "a firewall forgets the database's connections: they stay open, nothing passes; new ones work"
    needs = frozenset({Power.SERVER})

    def strike(self, site: Site) -> Strike:
        at = time.time()
        forgotten = site.to_database.forget_connections()
        assert forgotten, "no connection was open"
        return Strike(at, facts={"forgotten": forgotten})

    def check(self, site: Site, strike: Strike) -> None:
        """Waits for records that the last of these connections holds up, so that they count in this round."""
        oldest = site.shop.database.fence.oldest
        until(lambda: (oldest() or 0.0) < SOON_SECONDS, "no record waits any more", MET_SECONDS, pause=0.1)


class IdleEnds(Fault):
    name = "idle-ends"
    title = f"a proxy ends the database's connections that are idle for {IDLE_SECONDS * 1000:.0f} ms, once"
    needs = frozenset({Power.SERVER})

    def strike(self, site: Site) -> Strike:
        proxy, at = site.to_database, time.time()
        before = proxy.idle_ended
        proxy.end_idle(IDLE_SECONDS, reset=site.chance.random() < 0.5)
        try:
            while time.time() < at + IDLE_ENDS_SECONDS:
                site.shop.calm.set()
                time.sleep(1.0)
                site.shop.calm.clear()
                time.sleep(1.0)
        finally:
            site.shop.calm.clear()
            proxy.end_idle(None)
        ended = proxy.idle_ended - before
        assert ended, "no connection was idle"
        return Strike(at, facts={"ended": ended})


class ReadOnlyPrimary(Fault):
    name = "read-only"
    title = "the server becomes read-only under its connections (default_transaction_read_only; read_only)"
    needs = frozenset({Power.READ_ONLY})

    def strike(self, site: Site) -> Strike:
        at = time.time()
        with site.host.read_only():
            until(lambda: site.has_said("read-only", at), "a harvester meets it", MET_SECONDS, pause=0.1)
            time.sleep(READ_ONLY_SECONDS)
        return Strike(at, time.time() - at)


class Switchover(Fault):
    name = "switchover"
    title = "a replica that has everything takes over; the former primary is read-only, with its connections"
    needs = frozenset({Power.SUCCESSION})
    crash = False

    def strike(self, site: Site) -> Strike:
        successor = site.host.replicate()
        at = time.time()
        site.host.succeed(successor, crash=self.crash)
        return Strike(at, time.time() - at)


class Failover(Switchover):
    name = "failover"
    title = "SIGKILL of the primary; its synchronous replica takes over"
    needs = frozenset({Power.SUCCESSION, Power.RULES})
    crash = True


class UsedSessions(Fault):
    name = "pooler"
    title = "PgBouncer comes between; connections are cut three times, and it is killed once"
    needs = frozenset({Power.RULES})

    def strike(self, site: Site) -> Strike:
        with PgBouncer(site.host.source("pooler", site.host.server.port)) as pooler:
            at = time.time()
            site.detour = pooler.port
            for _ in range(POOLED_CUTS):
                site.to_database.cut()
                time.sleep(POOLED_SECONDS)
            logins = pooler.log.read_text().count("login attempt")
            killed_at = time.time()
            pooler.kill()
            pooler.start()
            away = time.time() - killed_at
            time.sleep(POOLED_SECONDS)
            site.detour = None
            site.to_database.cut()
        assert logins > POOLED_CUTS, "nobody came through the pooler"
        return Strike(at, away, facts={"logins": logins})


FAILOVER_FAULTS = (
    HalfOpen(),
    IdleEnds(),
    ReadOnlyPrimary(),
    Switchover(),
    Failover(),
    UsedSessions(),
)
