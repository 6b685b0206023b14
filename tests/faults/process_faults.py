"""Faults of the harvester's own processes: killed, frozen, told to stop."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable

import psutil
from outbox_api import DriverError
from outbox_core.leadership.leader import SILENT_SECONDS

from ..harvesters import Harvester, until  # noqa: TID252 - pytest gives tests no absolute name
from .fault import Fault, Strike
from .host import Power
from .site import Site

FREEZE_SESSIONS = 3
"""For how many session time-outs a process is frozen."""
END_SECONDS = 60.0
TAKEOVER_SECONDS = 60.0
"""Within this time a successor's lanes must run; the stall has the exact time."""


class KillLeader(Fault):
    name = "kill-leader"
    title = "SIGKILL of the leader's process"

    def strike(self, site: Site) -> Strike:
        letter, leader = site.chief()
        site.may_end.add(letter)
        at = leader.kill()
        until(lambda: not leader.running, "the leader is dead", END_SECONDS)
        return Strike(at, site.session, facts={"leader": leader.name})

    def check(self, site: Site, strike: Strike) -> None:
        for harvester in site.fleet.harvesters:
            if not harvester.running:
                until(lambda h=harvester: not h.family(), f"{harvester.name} left no process", END_SECONDS)  # type: ignore[misc]


class LeaveInTurn(Fault):
    name = "leave"
    title = "SIGTERM of the leader, which hands over"
    graceful = True

    def strike(self, site: Site) -> Strike:
        letter, leader = site.chief()
        site.may_end.add(letter)
        at = leader.send(signal.SIGTERM)
        wait_for_orderly_end(leader)
        return Strike(at, facts={"leader": leader.name})


class FreezeLeader(Fault):
    name = "freeze-leader"
    title = "SIGSTOP of the leader and all its processes for three sessions, then SIGCONT"

    def strike(self, site: Site) -> Strike:
        _, leader = site.chief()
        acquired_at = max(line.at for line in leader.lines() if "leader acquired" in line.text)
        at = time.time()
        frozen = send_all(leader, signal.SIGSTOP)
        if Power.EVICTION in site.host.powers:
            until(lambda: succeeded(site, leader), "a successor leads", TAKEOVER_SECONDS, pause=0.1)
        time.sleep(max(0.0, at + FREEZE_SESSIONS * site.session - time.time()))
        # It may have been frozen in a transaction for which others wait.
        held = not succeeded(site, leader)
        thawed_at = time.time()
        for process in reversed(frozen):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        # On a busy machine it may have lost its leadership just before it was frozen.
        leader.wait_for("leader fenced", END_SECONDS, acquired_at)
        until(lambda: succeeded(site, leader), "a successor leads", TAKEOVER_SECONDS, pause=0.1)
        floor = thawed_at - at if held else site.session
        return Strike(at, floor, facts={"leader": leader.name, "thawed_at": thawed_at, "held": held})

    def check(self, site: Site, strike: Strike) -> None:
        # The process is a standby again: the site has waited until it competes.
        if Power.TOUCHES not in site.host.powers:
            return
        thawed_at, name = strike.facts["thawed_at"], str(strike.facts["leader"])
        assert isinstance(thawed_at, float)
        touched = site.shop.postgres.touches(thawed_at)
        strike.facts["touched"] = touched
        assert touched.get(name, 0) == 0, f"{name} was fenced and changed {touched[name]} rows"
        assert sum(touched.values()), "the successor harvested nothing"


def succeeded(site: Site, former: Harvester) -> bool:
    """Returns whether another harvester leads."""
    with contextlib.suppress(DriverError):
        return site.leader() not in (None, former)
    return False


class KillWorker(Fault):
    name = "kill-worker"
    title = "SIGKILL of one of the leader's Python workers"
    engines = ("spark",)
    needs = frozenset({Power.SERVER})

    def strike(self, site: Site) -> Strike:
        _, leader = site.chief()
        worker = site.chance.choice(lane_processes(leader, site))
        at = time.time()
        worker.kill()
        return Strike(at, lost=1, facts={"leader": leader.name, "worker": worker.pid})


class FreezeWorker(Fault):
    name = "freeze-worker"
    title = "SIGSTOP of one of the leader's Python workers for three sessions, then SIGCONT"
    engines = ("spark",)
    needs = frozenset({Power.SERVER})

    def strike(self, site: Site) -> Strike:
        _, leader = site.chief()
        worker = site.chance.choice(lane_processes(leader, site))
        at = time.time()
        worker.suspend()
        time.sleep(FREEZE_SESSIONS * site.session)
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.resume()
        return Strike(at, SILENT_SECONDS, lost=1, facts={"leader": leader.name, "worker": worker.pid})


class KillJvm(Fault):
    name = "kill-jvm"
    title = "SIGKILL of the leader's JVM; the process ends, a standby takes over"
    engines = ("spark",)

    def strike(self, site: Site) -> Strike:
        letter, leader = site.chief()
        site.may_end.add(letter)
        (jvm,) = [process for process in leader.family() if process.name() == "java"]
        at = time.time()
        jvm.kill()
        code = leader.wait(2 * END_SECONDS)
        assert code == 1, f"{leader.name} ended with {code}:\n{leader.tail()}"
        return Strike(at, facts={"leader": leader.name})


def wait_for_orderly_end(harvester: Harvester) -> None:
    """Waits for the end of a process that was told to stop.

    Raises:
        AssertionError: It does not end, fails, or ends before it has finished.
    """
    code = harvester.wait(END_SECONDS)
    assert code == 0, f"{harvester.name} ended with {code}:\n{harvester.tail()}"
    assert "stopped" in harvester.lines()[-1].text, f"{harvester.name} was cut off:\n{harvester.tail()}"


def send_all(harvester: Harvester, number: signal.Signals) -> list[psutil.Process]:
    """Sends a signal to a harvester and its child processes; returns these processes, parents first."""
    processes = [psutil.Process(harvester.pid), *harvester.family()]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    return processes


def lane_processes(leader: Harvester, site: Site) -> list[psutil.Process]:
    """Returns the leader's processes with a connection to the database: those that run lanes."""
    return list(_connected(leader.family(), site.to_database.port))


def _connected(processes: Iterable[psutil.Process], port: int) -> Iterable[psutil.Process]:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            addresses = [each.raddr for each in process.net_connections("tcp")]
            if any(len(address) and address.port == port for address in addresses):
                yield process


PROCESS_FAULTS = (KillLeader(), LeaveInTurn(), FreezeLeader(), KillWorker(), FreezeWorker(), KillJvm())
