"""Kills a harvester and consumers, freezes consumers, and counts effects: each record has one, in order.

    python -m tests.inbox_fire --records 200000

starts a database and a broker of its own. Without inboxes (``--without-inbox``) it shows what they prevent.
"""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Thread
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, TopicPartition
from outbox_api import Record, Stasher
from outbox_api.application.inbox import Inbox
from outbox_servers.finding import open_kafka, open_postgres
from outbox_servers.services.process import ServerProcess

from .harvesters import Fleet, until
from .inbox_consumer import TABLES
from .shop import PARTITIONS, Shop

CONSUMER = Path(__file__).with_name("inbox_consumer.py")
KEYS = 300
AHEAD = 4000
"""How many records are stashed at most without an effect, so that all are at work until the end."""
FROZEN = 9.0
"""Seconds: longer than a consumer's session, and than its partitions take to move."""
PATIENCE = 120.0
"""Seconds without any progress, after which it fails."""


@dataclass(frozen=True)
class Outcome:
    """What became of the records.

    Attributes:
        records: How many were stashed.
        sent: How many messages are in the topic: the others are the harvester's repeats.
        effects: How many effects there are.
        misplaced: How many of them are not at the place of their record among those of its key.
        wrong_keys: How many keys do not have as many effects as records.
        absorbed: How many repeats the inbox has absorbed.
        seconds: How long it took.
    """

    records: int
    sent: int
    effects: int
    misplaced: int
    wrong_keys: int
    absorbed: int
    seconds: float

    @property
    def exactly_once(self) -> bool:
        """Whether each record has one effect, in the order of its key."""
        return (self.effects, self.misplaced, self.wrong_keys) == (self.records, 0, 0)


class Fire:
    """One run.

    Args:
        shop: An open shop: outbox and topic.
        fleet: Starts its harvesters.
        effects: The connection string of the consumers' database, which is empty.
        folder: The folder for their logs.
        inbox: Whether the consumers have one.
    """

    def __init__(self, shop: Shop, fleet: Fleet, effects: str, folder: Path, *, inbox: bool = True) -> None:
        self._shop = shop
        self._fleet = fleet
        self._effects = effects
        self._folder = folder
        self._options = () if inbox else ("--without-inbox",)
        self._consumers: list[ServerProcess] = []
        self._looking = psycopg.connect(effects, autocommit=True)
        self._looking.execute(TABLES)
        for statement in Inbox("fire").ddl():
            self._looking.execute(statement.encode())

    def run(self, records: int, kills: int, seed: int) -> Outcome:
        """Stashes records; so often meanwhile, at random moments, kills the harvester and a consumer.

        And twice freezes a consumer until its partitions are another's, which waits for what it has begun.
        """
        random, began = Random(seed), time.monotonic()
        last = Counter(f"key-{number % KEYS}" for number in range(records))
        writer = Thread(target=self._write, args=(records,), daemon=True)
        try:
            self._harvest()
            for _ in range(2):
                self._consume()
            writer.start()
            moments = sorted(
                (random.uniform(0.02, 0.97) * records, who)
                for who in (*("harvester", "consumer") * kills, *("frozen",) * 2)
            )
            for moment, who in moments:
                self._wait_for(int(moment))
                time.sleep(random.uniform(0, 0.3))
                self._strike(who, random)
            self._wait_for(records)
            writer.join()
            self._shop.wait_until_harvested(PATIENCE)
            sent = sum(self._shop.ends().values())
            until(lambda: self._committed() >= sent, "all messages are taken", PATIENCE, pause=0.5)
        finally:
            for each in self._consumers:
                each.kill()
        return self._outcome(last, sent, time.monotonic() - began)

    def close(self) -> None:
        """Disconnects."""
        self._looking.close()

    def _write(self, records: int) -> None:
        stasher, portion = Stasher("outbox"), 50
        with psycopg.connect(self._shop.dsn) as connection, psycopg.connect(self._effects) as looking:
            looking.autocommit = True
            for start in range(0, records, portion):
                stasher.stash_many(
                    connection,
                    [
                        Record(self._shop.topic, f"key-{number % KEYS}", str(number // KEYS + 1))
                        for number in range(start, min(start + portion, records))
                    ],
                )
                connection.commit()
                while start - _total(looking) > AHEAD:
                    time.sleep(0.02)

    def _harvest(self) -> None:
        name = f"harvester-{len(self._fleet.harvesters)}"
        harvester = self._fleet.start(name, transform=[{"driver": "identity"}])
        harvester.wait_for("leader acquired", 60)

    def _consume(self) -> None:
        name = f"consumer-{len(self._consumers)}"
        command = [sys.executable, str(CONSUMER), self._effects]
        command += [self._shop.kafka.bootstrap, self._shop.topic, *self._options]
        self._consumers.append(ServerProcess(name, command, log=self._folder / f"{name}.log"))

    def _strike(self, who: str, random: Random) -> None:
        if who == "harvester":
            self._fleet.harvesters[-1].kill()
            self._harvest()
        else:
            running = [each for each in self._consumers if each.running]
            assert len(running) == 2, self._logs()
            victim = random.choice(running)
            if who == "consumer":
                victim.kill()
                self._consume()
            else:
                os.kill(victim.pid, signal.SIGSTOP)
                time.sleep(FROZEN)
                os.kill(victim.pid, signal.SIGCONT)

    def _wait_for(self, effects: int) -> None:
        """Waits for so many effects; fails if there are no more for a while."""
        seen, since = -1, time.monotonic()
        while (total := _total(self._looking)) < effects:
            if total > seen:
                seen, since = total, time.monotonic()
            assert time.monotonic() - since < PATIENCE, f"{total} effects\n{self._logs()}"
            time.sleep(0.02)

    def _logs(self) -> str:
        tails = [each.log_tail() for each in self._consumers]
        return "\n\n".join([*tails, self._fleet.harvesters[-1].tail()])

    def _committed(self) -> int:
        settings = {"bootstrap.servers": self._shop.kafka.bootstrap, "group.id": self._shop.topic}
        consumer = Consumer(settings)
        places = [TopicPartition(self._shop.topic, number) for number in range(PARTITIONS)]
        try:
            return sum(max(place.offset, 0) for place in consumer.committed(places, 10))
        finally:
            consumer.close()

    def _outcome(self, last: Counter[str], sent: int, seconds: float) -> Outcome:
        effects, misplaced = self._ask(
            "SELECT count(*), count(*) FILTER (WHERE place <> number) FROM effects"
        )
        [absorbed] = self._ask("SELECT coalesce(sum(records), 0)::bigint FROM repeats")
        totals: dict[str, int] = dict(self._looking.execute("SELECT key, total FROM counters").fetchall())
        wrong = sum(totals.get(key) != last[key] for key in totals.keys() | last.keys())
        return Outcome(last.total(), sent, effects, misplaced, wrong, absorbed, seconds)

    def _ask(self, query: str) -> tuple[int, ...]:
        row = self._looking.execute(query.encode()).fetchone()
        assert row is not None
        return row


def _total(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT coalesce(sum(total), 0)::bigint FROM counters").fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=5, help="of the harvester, and as many of a consumer")
    parser.add_argument("--seed", type=int, default=Random().randrange(1_000_000))
    parser.add_argument("--without-inbox", action="store_true")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, open_postgres() as postgres, open_kafka() as kafka:
        shop = Shop(postgres.create_database("shop"), kafka, f"fire-{uuid4().hex[:8]}")
        shop.open()
        fleet = Fleet(Path(folder), shop)
        effects = postgres.create_database("effects")
        fire = Fire(shop, fleet, effects, Path(folder), inbox=not arguments.without_inbox)
        try:
            outcome = fire.run(arguments.records, arguments.kills, arguments.seed)
        finally:
            fire.close()
            fleet.close()
    print(outcome)
    print(f"repeated by the harvester: {outcome.sent - outcome.records}; absorbed: {outcome.absorbed}")
    sys.exit(0 if outcome.exactly_once else "not exactly once")


if __name__ == "__main__":
    main()
