"""A database or broker that is down for a minute: what a harvester costs meanwhile, and that it continues."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import psutil

from ..harvesters import Harvester, until  # noqa: TID252 - pytest gives tests no absolute name
from .judge import CATCH_UP_SECONDS
from .rounds import RECOVERY_SECONDS, flows
from .site import Site

BEFORE_SECONDS = 15.0
"""The time for which the usual cost is measured."""
AFTER_SECONDS = 10.0
"""The time after the return for which memory is measured."""
SAMPLE_SECONDS = 0.5
MEGABYTE = 1 << 20


class Meter:
    """The cost of a harvester and all its child processes."""

    def __init__(self, harvester: Harvester) -> None:
        self._harvester = harvester
        self._spent: dict[int, float] = {}

    def cpu(self) -> float:
        """Returns seconds of processor time since the start, including processes that have ended."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._spent[process.pid] = times.user + times.system
        return sum(self._spent.values())

    def memory(self) -> float:
        """Returns resident megabytes."""
        total = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss / MEGABYTE
        return total

    def _processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._harvester.pid), *self._harvester.family()]


def measure(site: Site, away: str, seconds: float) -> dict[str, Any]:
    """Stops ``database`` or ``broker`` for a while; returns what that cost the leader.

    Raises:
        AssertionError: A harvester ended, or records do not flow again.
    """
    take, bring = _server(site, away)
    site.heal()
    _, leader = site.chief()
    pids = {each.pid for each in site.slots.values()}
    meter = Meter(leader)
    with site.shop.selling(site.setup.pause):
        site.shop.wait_for_sales(50)
        cpu, _ = _observe(meter, BEFORE_SECONDS)
        cpu_before, memory_before = cpu * seconds / BEFORE_SECONDS, meter.memory()
        take()
        cpu, most = _observe(meter, seconds)
        bring()
        back_at = time.time()
        until(
            lambda: flows(site, back_at), "records flow again", 2 * RECOVERY_SECONDS[site.delivery], pause=0.1
        )
        back = time.time() - back_at
        time.sleep(AFTER_SECONDS)
    site.shop.wait_until_harvested(CATCH_UP_SECONDS[site.delivery])
    running = {each.pid for each in site.slots.values() if each.running}
    assert running == pids, "a harvester had to be restarted"
    result = site.shop.audit()
    site.note("outage", away=away, verdict=result.summary())
    found = {"engine": site.engine, "away": away, "seconds": seconds, "cpu": cpu, "cpu_before": cpu_before}
    found |= {"memory_before": memory_before, "memory_most": most, "memory_after": meter.memory()}
    site.renew_shop()
    return {**found, "back": back, "lost": result.lost, "out_of_order": result.out_of_order}


def _server(site: Site, away: str) -> tuple[Callable[[], object], Callable[[], object]]:
    if away == "database":
        return site.host.server.kill, site.host.server.start
    return site.kafka.kill, site.kafka.start


def _observe(meter: Meter, seconds: float) -> tuple[float, float]:
    """Returns processor seconds spent, and the most memory that was seen, in so many seconds."""
    before, most, until_ = meter.cpu(), 0.0, time.monotonic() + seconds
    while time.monotonic() < until_:
        most = max(most, meter.memory())
        time.sleep(SAMPLE_SECONDS)
    return meter.cpu() - before, most
