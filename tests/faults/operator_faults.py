"""Faults by people: records that cannot be sent while leaders change, and changes of the number of lanes."""

from __future__ import annotations

import itertools
import signal
import time
from contextlib import closing

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from outbox_api import WHOLE
from outbox_api.portable.dead_letters import PortableDeadLetters
from outbox_core.status.pauses import in_effect
from outbox_core.status.snapshot import present_lanes

from ..harvesters import Harvester, until  # noqa: TID252 - pytest gives tests no absolute name
from .fault import EXACTLY_ONCE, Fault, Strike
from .process_faults import TAKEOVER_SECONDS, wait_for_orderly_end
from .site import LARGEST_MESSAGE, START_SECONDS, Site

PARK_SECONDS = 60.0
"""Within this time a record that cannot be sent is tried as often as the settings say."""
PAUSE_SECONDS = 15.0
"""Within this time a pause is in effect while nothing else fails."""
READ_SECONDS = 0.5
"""So long a message may be on its way to the witness."""
QUIET_SECONDS = 1.0
"""So long nothing may arrive of what is paused."""
_FIRST_IDEOGRAPH, _IDEOGRAPHS = 0x4E00, 20_000
_CHARACTERS = 10_000
"""Characters of a value, the maximum of goharvest's column; each has three bytes and hardly compresses."""


class PoisonedTakeover(Fault):
    name = "poison"
    title = (
        "a record too large for the topic, and SIGKILL of the leader; the key is parked, and retried later"
    )

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def strike(self, site: Site) -> Strike:
        key = f"poison-{next(self._numbers)}"
        self._sell(site, key)
        letters = site.shop.database.dialect.dead_letters()
        try:
            parked_first = site.chance.random() < 0.5
            if parked_first:
                until(lambda: letters.find([key]), "the key is parked", PARK_SECONDS, pause=0.1)
            letter, leader = site.chief()
            site.may_end.add(letter)
            at = leader.kill()
            until(
                lambda: site.leader() not in (None, leader), "a successor leads", TAKEOVER_SECONDS, pause=0.1
            )
            until(lambda: letters.find([key]), "the key is parked", PARK_SECONDS, pause=0.1)
            self._retry(site, key, letters)
        finally:
            letters.close()
        facts = {"leader": leader.name, "key": key, "parked_first": parked_first}
        return Strike(at, site.session, facts=facts)

    @staticmethod
    def _sell(site: Site, key: str) -> None:
        """Sells a small record, one that is too large, and a small one."""
        large = "".join(
            chr(_FIRST_IDEOGRAPH + site.chance.randrange(_IDEOGRAPHS)) for _ in range(_CHARACTERS)
        )
        for number, value in enumerate(("first", large, "last"), 1):
            with closing(site.shop.database.connect()) as connection:
                site.shop.sell(connection, key, number, value)
                connection.commit()

    def _retry(self, site: Site, key: str, letters: PortableDeadLetters) -> None:
        found = letters.find([key])
        early = [sequence for _, name, sequence in site.witness.arrivals if name == key]
        _limit_messages(site, 10 * LARGEST_MESSAGE)
        try:
            letters.retry([each.record.id for each in found])
            until(
                lambda: self._arrived(site, key) >= {1, 2, 3}, "the parked key flows", PARK_SECONDS, pause=0.1
            )
        finally:
            _limit_messages(site, LARGEST_MESSAGE)
        # Raised only here, so that the parked key does not affect later rounds. The leader that was killed
        # may have left the first record delivered and not purged.
        once = early if site.delivery == EXACTLY_ONCE else list(dict.fromkeys(early))
        assert once == [1], f"of {key}, whose second record is poison, {early} arrived before it was retried"

    @staticmethod
    def _arrived(site: Site, key: str) -> set[int | None]:
        return {sequence for _, name, sequence in site.witness.arrivals if name == key}


def _limit_messages(site: Site, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, site.shop.topic, incremental_configs=[entry])
    site.shop.admin.incremental_alter_configs([resource])[resource].result(30)


class ChangeLanes(Fault):
    name = "change-lanes"
    title = "the harvesters are restarted one after the other, with another number of lanes"
    graceful = True

    def strike(self, site: Site) -> Strike:
        site.lanes = self._number(site)
        letter, leader = site.chief()
        for other in sorted(set(site.slots) - {letter}):
            site.may_end.add(other)
            site.slots[other].send(signal.SIGTERM)
            wait_for_orderly_end(site.slots[other])
            site.may_end.discard(other)
            site.launch(other).wait_for("joined the election", START_SECONDS[site.engine])
        site.may_end.add(letter)
        at = self._end(leader)
        return Strike(at, self._floor(site), facts={"leader": leader.name, "lanes": site.lanes})

    def _number(self, site: Site) -> int:
        most = site.host.lanes
        return most - 1 if site.lanes == most else most

    def _floor(self, site: Site) -> float:
        return 0.0

    def _end(self, leader: Harvester) -> float:
        at = leader.send(signal.SIGTERM)
        wait_for_orderly_end(leader)
        return at


class KillForOtherLanes(ChangeLanes):
    name = "kill-for-lanes"
    title = "standbys are restarted with another number of lanes (1 to 4), and the leader gets SIGKILL"
    graceful = False

    def _number(self, site: Site) -> int:
        return site.chance.choice(
            [number for number in range(1, site.host.lanes + 1) if number != site.lanes]
        )

    def _floor(self, site: Site) -> float:
        return site.session

    def _end(self, leader: Harvester) -> float:
        return leader.kill()


class PausedTakeover(Fault):
    name = "pause"
    title = (
        "the topic or the outbox is paused; once that is in effect, SIGKILL of the leader; then it is resumed"
    )

    def strike(self, site: Site) -> Strike:
        topic = site.chance.choice((WHOLE, site.shop.topic))
        with closing(site.shop.database.dialect.connect()) as table:
            began = time.time()
            pause = table.pause(topic, "an operator", "a round of faults")
            until(
                lambda: all(in_effect(each.metrics, pause) for each in present_lanes(table.lane_statuses())),
                "the pause is in effect",
                PAUSE_SECONDS,
                pause=0.05,
            )
            effect = time.time() - began
            self._expect_nothing(site, "while the topic is paused")
            letter, leader = site.chief()
            site.may_end.add(letter)
            at = leader.kill()
            until(
                lambda: site.leader() not in (None, leader), "a successor leads", TAKEOVER_SECONDS, pause=0.1
            )
            self._expect_nothing(site, "of a successor while the topic is paused")
            table.resume(topic)
        facts = {"leader": leader.name, "topic": topic, "effect": round(effect, 2)}
        return Strike(at, max(site.session, time.time() - at), facts=facts)

    @staticmethod
    def _expect_nothing(site: Site, when: str) -> None:
        time.sleep(READ_SECONDS)
        arrived = len(site.witness.arrivals)
        time.sleep(QUIET_SECONDS)
        assert len(site.witness.arrivals) == arrived, f"records arrive {when}"


OPERATOR_FAULTS = (PoisonedTakeover(), ChangeLanes(), KillForOtherLanes(), PausedTakeover())
