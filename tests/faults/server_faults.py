"""Faults of the servers: the database's and the broker, crashed and restarted."""

from __future__ import annotations

import time

from .fault import Fault, Strike
from .host import Power
from .site import Site


class CrashDatabase(Fault):
    name = "database-crash"
    title = "SIGKILL of the database server, which is restarted and recovers"
    needs = frozenset({Power.SERVER})

    def strike(self, site: Site) -> Strike:
        at = time.time()
        site.host.server.kill()
        site.host.server.start()
        return Strike(at, time.time() - at)


class RestartDatabase(Fault):
    name = "database-restart"
    title = "the database server is shut down in order, and restarted"
    needs = frozenset({Power.SERVER})

    def strike(self, site: Site) -> Strike:
        at = time.time()
        site.host.server.restart()
        return Strike(at, time.time() - at)


class CrashBroker(Fault):
    name = "broker-crash"
    title = "SIGKILL of the broker, which is restarted"

    def strike(self, site: Site) -> Strike:
        at = time.time()
        site.kafka.kill()
        site.kafka.start()
        return Strike(at, time.time() - at)


class FreezeBroker(Fault):
    name = "freeze-broker"
    title = "SIGSTOP of the broker for two sessions, then SIGCONT"

    def strike(self, site: Site) -> Strike:
        at = time.time()
        for broker in site.brokers.each:
            broker.pause()
        try:
            time.sleep(2 * site.session)
        finally:
            for broker in site.brokers.each:
                broker.resume()
        return Strike(at, time.time() - at)


SERVER_FAULTS = (CrashDatabase(), RestartDatabase(), CrashBroker(), FreezeBroker())
