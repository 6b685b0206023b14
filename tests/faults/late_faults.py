"""Requests that were repeated, and arrive the first time last: within a later transaction of their lane."""

from __future__ import annotations

import contextlib
import itertools
import time
from contextlib import closing
from typing import ClassVar

import psutil
from outbox_api import Record
from outbox_audit import SEQUENCE_HEADER

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .brokers import OLD, SPREAD, THREE, UNVERIFIED, Setup
from .fault import EXACTLY_ONCE, Fault, Strike
from .late_requests import MOMENTS, PRODUCE, Moment, What
from .operator_faults import PARK_SECONDS
from .process_faults import END_SECONDS, TAKEOVER_SECONDS
from .site import LARGEST_MESSAGE, Site

LATE_SECONDS = 12.0
"""For so long requests are kept, one a second."""
KEPT_SECONDS = 60.0
"""Within this time at least one request is delivered late."""
BURST, KEYS = 4000, 60
"""The records of one burst, so that a transaction has thousands, and how many keys they have."""
KILLS = 0.3
"""The share of strikes in which the leader is killed."""
_LATER = tuple(Moment(PRODUCE, number) for number in (2, 3, 5, 9))
"""Moments of a lane without transactions; its first request is the repeated one."""


class LateRequest(Fault):
    """Once a second a request is kept, and delivered later, under bursts of sales."""

    name = "late-requests"
    title = (
        "for 12 s, each second, a request to commit or abort (at-least-once: to produce) is kept, and its"
        " connection cut; it arrives within a later transaction; in some rounds SIGKILL of the leader"
    )
    setup: ClassVar[Setup] = SPREAD

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._refused: list[str] = []

    def strike(self, site: Site) -> Strike:
        late, at = site.brokers.late, time.time()
        kept, answers = late.kept, late.answers.copy()
        kills = site.chance.uniform(0.3, 0.7) * LATE_SECONDS if site.chance.random() < KILLS else None
        facts: dict[str, object] = {}
        try:
            while (passed := time.time() - at) < LATE_SECONDS or (
                late.answers == answers and passed < KEPT_SECONDS
            ):
                self._keep(site)
                self._burst(site)
                if kills is not None and passed >= kills:
                    facts["leader"], kills = self._kill(site), None
                time.sleep(max(0.0, at + passed + 1.0 - time.time()))
        finally:
            late.forget()
            self._skip(site)
        came = late.answers - answers
        assert came, "no request was delivered late"
        given_up = site.has_said("no broker has acknowledged it in time", at)
        facts |= {"kept": late.kept - kept, "answers": dict(came), "given up": given_up}
        return Strike(at, time.time() - at, lost=int(given_up), facts=facts)

    def _keep(self, site: Site) -> None:
        if site.delivery != EXACTLY_ONCE:
            site.brokers.late.keep(What.PRODUCE, site.chance.choice(_LATER))
            return
        what = site.chance.choice((What.COMMIT, What.ABORT))
        site.brokers.late.keep(what, site.chance.choice(MOMENTS))
        if what is What.ABORT:
            self._refuse(site)

    def _burst(self, site: Site) -> None:
        first = next(self._numbers)
        site.shop.stash(BURST, keys=KEYS, start=first * BURST)

    def _refuse(self, site: Site) -> None:
        """Writes a record without a sale, which no broker takes: its transaction aborts, and it is parked."""
        key = f"refused-{next(self._numbers)}"
        self._refused.append(key)
        large = "".join(chr(site.chance.randrange(0x4E00, 0x9E00)) for _ in range(LARGEST_MESSAGE // 2))
        record = Record(site.shop.topic, key, large, ((SEQUENCE_HEADER, "1"),))
        with closing(site.shop.database.connect()) as connection:
            site.shop.database.sell(connection, [], [record])
            connection.commit()

    def _skip(self, site: Site) -> None:
        """Waits until what was refused is parked, and takes it out of the outbox."""
        keys, self._refused = self._refused, []
        with closing(site.shop.database.dialect.dead_letters()) as letters:
            parked = (
                until(
                    lambda: len(found := letters.find(keys)) == len(keys) and found,
                    "what was refused is parked",
                    PARK_SECONDS,
                    pause=0.1,
                )
                if keys
                else ()
            )
            letters.skip([each.record.id for each in parked])

    def _kill(self, site: Site) -> str:
        letter, leader = site.chief()
        site.may_end.add(letter)
        leader.kill()
        for process in leader.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        until(lambda: not leader.running, "the leader is dead", END_SECONDS)
        until(lambda: site.leader() not in (None, leader), "a successor leads", TAKEOVER_SECONDS, pause=0.1)
        return leader.name


class LateRequestOfThree(LateRequest):
    name = "late-requests-three"
    title = f"as `{LateRequest.name}`, with three brokers"
    setup = THREE


class LateRequestOfOld(LateRequest):
    name = "late-requests-3.9"
    title = f"as `{LateRequest.name}`, with Kafka 3.9"
    setup = OLD


class LateRequestUnverified(LateRequest):
    name = "late-requests-unverified"
    title = f"as `{LateRequest.name}`, with a broker that does not verify transactions"
    setup = UNVERIFIED


LATE_FAULTS = (LateRequest(), LateRequestOfThree(), LateRequestOfOld(), LateRequestUnverified())
