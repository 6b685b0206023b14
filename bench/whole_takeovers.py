"""Takeovers of whole harvesters: what a consumer of their records hears meanwhile, and the audit."""

from __future__ import annotations

import signal
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from outbox_audit import Result

from bench.electors import BenchElector
from bench.listening import Listening
from tests.harvesters import Fleet, Harvester, until
from tests.shop import PARTITIONS, Shop

JOINED = "joined the election"
ACQUIRED = "leader acquired"
FENCED = "leader fenced"
BY_THE_FENCE = "is no longer held"
SETTLED = 1.0
"""Seconds of undisturbed harvest before each incident."""
PATIENCE = 60.0


@dataclass
class Outcome:
    """What an incident has cost, a number for each round.

    Attributes:
        silences: The consumer's longest silence, in seconds.
        unled: Seconds until another process led, or the same one again.
        audit: Of all rounds together.
        fenced: How often the fence stopped a former leader.
        stolen: Rows that a former leader changed after its successor had changed some.
    """

    silences: list[float] = field(default_factory=list)
    unled: list[float] = field(default_factory=list)
    audit: Result | None = None
    fenced: int = 0
    stolen: int = 0


class Listener(Listening):
    """A consumer of committed records that notes when they come."""

    def __init__(self, shop: Shop) -> None:
        self._arrivals: list[float] = []
        quick = {
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
        super().__init__(shop.kafka.bootstrap, [shop.topic], PARTITIONS, quick)

    def longest_silence(self, since: float, until: float) -> float:
        """Returns the longest time without a record between two times, in seconds."""
        heard = list(self._arrivals)
        between = heard[bisect_left(heard, since) : bisect_right(heard, until)]
        return max(later - earlier for earlier, later in pairwise([since, *between, until]))

    def heard_since(self, at: float) -> bool:
        """Returns whether a record has come since."""
        return bool(self._arrivals) and self._arrivals[-1] >= at

    def note(self, message: Message) -> None:  # noqa: ARG002 - only when it comes matters
        """Notes when it came."""
        self._arrivals.append(time.time())


class Company:
    """Two harvesters of one outbox, one of which leads; a new one joins for each that ends."""

    def __init__(self, elector: BenchElector, delivery: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="outbox-takeovers-")
        servers = elector.servers
        name = f"whole-{elector.driver}-{delivery}-{time.time_ns()}"
        self.shop = Shop(servers.postgres.create_database(name.replace("-", "_")), servers.kafka, name)
        self.shop.open()
        self.shop.postgres.watch()
        self.fleet = Fleet(Path(self._folder.name), self.shop)
        self._harvest: dict[str, Any] = {"elector": elector.settings(name), "delivery": delivery}
        self._names = count(1)
        self.elector = elector
        self.running: list[Harvester] = []
        for _ in range(2):
            self.join()
        self.leader = self.next_leader(0.0)
        self.listener = Listener(self.shop)

    def join(self) -> Harvester:
        """Starts a harvester and waits until it takes part."""
        harvester = self.fleet.start(f"h{next(self._names)}", **self._harvest)
        harvester.wait_for(JOINED, PATIENCE)
        self.running.append(harvester)
        return harvester

    def next_leader(self, since: float) -> Harvester:
        """Waits until a running harvester has acquired leadership since a time."""
        found: list[Harvester] = until(
            lambda: [each for each in self.running if each.find(ACQUIRED, since)], "somebody leads", PATIENCE
        )
        return found[0]

    def latest_leader(self) -> Harvester:
        """Returns the running harvester that was the last to acquire leadership."""
        led = [(line.at, each) for each in self.running for line in each.lines() if ACQUIRED in line.text]
        return max(led, key=lambda each: each[0])[1]

    def remove(self, harvester: Harvester) -> None:
        """Counts a harvester no longer."""
        self.running.remove(harvester)

    def close(self) -> None:
        """Ends all harvesters."""
        self.listener.close()
        self.fleet.close()
        self.shop.database.fence.close()
        self._folder.cleanup()


Incident = Callable[[Company], tuple[float, Harvester]]
"""Makes it happen; returns when, and who leads then."""


def stop(company: Company) -> tuple[float, Harvester]:
    """The leader is told to stop."""
    leader = company.leader
    company.remove(leader)
    at = leader.send(signal.SIGTERM)
    successor = company.next_leader(at)
    assert leader.wait(30) == 0, leader.tail()
    company.join()
    return at, successor


def kill(company: Company) -> tuple[float, Harvester]:
    """The leader is killed."""
    company.remove(company.leader)
    at = company.leader.kill()
    successor = company.next_leader(at)
    company.join()
    return at, successor


def kill_and_replace(company: Company) -> tuple[float, Harvester]:
    """The leader is killed, and another process joins during its session."""
    company.remove(company.leader)
    at = company.leader.kill()
    time.sleep(min(3.0, company.elector.session / 2))
    company.join()
    return at, company.next_leader(at)


def freeze(company: Company) -> tuple[float, Harvester]:
    """The leader stands still for longer than its session."""
    frozen = company.leader
    company.remove(frozen)
    at = frozen.send(signal.SIGSTOP)
    successor = company.next_leader(at)
    time.sleep(max(0.0, at + 2 * company.elector.session - time.time()))
    thawed = frozen.send(signal.SIGCONT)
    frozen.wait_for(FENCED, PATIENCE, thawed)
    company.running.append(frozen)
    return at, successor


def restart(company: Company) -> tuple[float, Harvester]:
    """The elector's service ends as in a crash and is started again at once."""
    at = time.time()
    company.elector.service.kill()
    company.elector.service.start()
    since = time.time()
    until(lambda: company.listener.heard_since(since + 0.5), "records flow again", PATIENCE)
    time.sleep(2 * company.elector.session)  # leadership may move yet
    return at, company.latest_leader()


INCIDENTS: dict[str, Incident] = {
    "stopped": stop,
    "killed": kill,
    "killed and replaced": kill_and_replace,
    "frozen": freeze,
    "service restarted": restart,
}


def measure(
    elector: BenchElector, delivery: str, incident: str, rounds: int, say: Callable[[str], None]
) -> Outcome:
    """Lets an incident happen a number of times while records flow."""
    outcome = Outcome()
    with companies(elector, delivery) as company:
        with company.shop.selling():
            for number in range(rounds):
                time.sleep(SETTLED)
                company.leader = company.latest_leader()  # a busy machine may have moved it
                at, successor = INCIDENTS[incident](company)
                led = successor.find(ACQUIRED, at)
                outcome.unled.append(led.at - at if led else 0.0)
                time.sleep(SETTLED)
                until(partial(company.listener.heard_since, time.time()), "records flow", PATIENCE)
                outcome.silences.append(company.listener.longest_silence(at, time.time()))
                say(f"{elector.driver} {incident} {number + 1}: {outcome.silences[-1]:.2f} s of silence, "
                    f"{outcome.unled[-1]:.2f} s without a leader")  # fmt: skip
        company.shop.wait_until_harvested(PATIENCE)
        outcome.audit = company.shop.audit()
        lines = [line.text for each in company.fleet.harvesters for line in each.lines()]
        outcome.fenced = sum(FENCED in text and BY_THE_FENCE in text for text in lines)
        outcome.stolen = stolen(company)
    return outcome


@contextmanager
def companies(elector: BenchElector, delivery: str) -> Iterator[Company]:
    """Opens a company and closes it."""
    company = Company(elector, delivery)
    try:
        yield company
    finally:
        company.close()


def stolen(company: Company) -> int:
    """Returns how many rows a former leader changed after its successor had changed some."""
    terms = sorted(
        (line.at, each.name)
        for each in company.fleet.harvesters
        for line in each.lines()
        if ACQUIRED in line.text
    )
    touches = company.shop.database.fetch(
        "SELECT extract(epoch FROM at), who, records FROM touches ORDER BY at"
    )
    newest, rows = 0, 0
    for at, who, records in touches:
        term = max(
            (number for number, (began, name) in enumerate(terms) if name == who and began <= at), default=0
        )
        rows += records if term < newest else 0
        newest = max(newest, term)
    return rows
