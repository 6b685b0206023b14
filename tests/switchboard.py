"""A broker behind a proxy that can cut commits, and checks of the lanes that use it."""

from __future__ import annotations

from typing import Any

from outbox_servers.services import KafkaBroker

from .faults.proxy import Proxy, Trap
from .harvesters import Harvester, until
from .shop import Shop


class Switchboard:
    """A broker that creates no topics by itself, with a proxy that can cut commits."""

    def __init__(self) -> None:
        self.proxy = Proxy(lambda: self.kafka.proxied_port)
        self.kafka = KafkaBroker(proxy_port=self.proxy.port, auto_create_topics=False)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a harvester that uses the proxy, with exactly-once delivery."""
        through = {"bootstrap.servers": f"127.0.0.1:{self.proxy.port}"}
        return {"delivery": "exactly-once", "baseKafkaConfig": through}

    def mute_commits(self, lanes: int) -> None:
        """Cuts the next commit of each lane after the broker has executed it, before the reply."""
        self.proxy.set_trap(Trap.MUTE)
        self._wanted = self.proxy.sprung + lanes

    def wait_until_committed(self) -> None:
        until(lambda: self.proxy.sprung >= self._wanted, "each lane has committed", 60)

    def wait_until_forwarded(self) -> None:
        """Waits until the broker has received what harvesters had sent that do not run any more."""
        until(lambda: not self.proxy._connections, "all connections have ended", 60)


def wait_for_lanes(shop: Shop, lanes: int) -> None:
    with shop.connect() as connection:
        noted = "SELECT count(*) = %s FROM outbox_fence WHERE transacting = %s"
        until(lambda: connection.execute(noted, (lanes, lanes)).fetchall() == [(True,)], "lanes begin", 60)


def recovered(harvester: Harvester) -> int:
    """Returns how many rows a harvester's lanes found in the log when they started."""
    said = (line.text.split() for line in harvester.lines() if "rows were in the log already" in line.text)
    return sum(int(words[words.index("rows") - 1]) for words in said)
