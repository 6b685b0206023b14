"""What happens to an outbox while its dashboard is watched."""

from __future__ import annotations

import time
from contextlib import ExitStack

from outbox_servers.services import KafkaBroker

from ..alarms.faults import LARGE, lose_cluster  # noqa: TID252 - as the tests beside it
from ..alarms.site import Site  # noqa: TID252 - as the tests beside it

WAVES = (40, 70, 110, 160, 120, 60)
"""Records stashed each second, one number for a tenth of a minute each."""


def live(site: Site, seconds: float) -> None:
    """Has records flow, the broker hang, leaders die, another cluster be lost and a key be parked."""
    broker = site.servers.kafka
    assert isinstance(broker, KafkaBroker)
    began = time.monotonic()
    with ExitStack() as end:
        lost = end.enter_context(ExitStack())
        planned = [
            (0.2, broker.pause),
            (0.25, broker.resume),
            (0.35, lambda: kill_all(site)),
            (0.5, lambda: start_all(site)),
            (0.6, lambda: lost.enter_context(lose_cluster(site))),
            (0.65, lost.close),
            (0.7, lambda: kill_leader(site)),
            (0.8, lambda: site.stash(key="customer-", value=LARGE)),
        ]
        while (passed := time.monotonic() - began) < seconds:
            site.stash(WAVES[int(passed / 6) % len(WAVES)], keys=50)
            while planned and passed >= planned[0][0] * seconds:
                planned.pop(0)[1]()
            time.sleep(1)


def kill_all(site: Site) -> None:
    for each in site.harvesters.values():
        each.kill()
        each.wait(10)


def start_all(site: Site) -> None:
    for name in list(site.harvesters):
        site.start(name)


def kill_leader(site: Site) -> None:
    """Kills the leader, and starts it again when the other one leads."""
    leader = site.leader()
    [standby] = site.harvesters.keys() - {leader}
    killed_at = site.harvesters[leader].kill()
    site.harvesters[leader].wait(10)
    site.harvesters[standby].wait_for("leader acquired", 60, killed_at)
    site.start(leader)
