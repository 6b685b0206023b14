"""Lets a month of days pass in an outbox in partitions: rows at a rate, days that end, partitions that go.

Days are moved by ``create_time``, not by waiting. Rows of the day that has just ended still come, some in
transactions that stay open. Says what was lost, and how long inserts and purges took beside drops.
"""

from __future__ import annotations

import argparse
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from time import monotonic, sleep
from unittest import mock

from outbox_api.portable.days import DAY, Days
from outbox_api.portable.partitions import divided_outbox
from outbox_api.portable.sources import quoted
from outbox_servers.services import PostgresServer
from outbox_servers.services.mysql import MariaDbServer, MySqlServer
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import ALL, Box, texts

WRITERS, ROWS = 4, 10
STAYS_OPEN = 0.01
"""How many transactions stay open for a while."""

SERVERS = {"postgres": PostgresServer, "mysql": MySqlServer, "mariadb": MariaDbServer}


@dataclass
class Month:
    """An outbox, who writes into it and who harvests it, and how long what they did took."""

    box: Box
    rate: float
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(hour=12))
    written: dict[str, list[str]] = field(default_factory=dict)
    delivered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    took: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    ended: threading.Event = field(default_factory=threading.Event)
    written_all: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def timed(self, what: str, pause: float = 0.0) -> Iterator[None]:
        """Notes when something began and ended, without a pause that it makes."""
        began = monotonic()
        yield
        self.took[what].append((began + pause, monotonic()))

    def write(self, key: str) -> None:
        """Inserts ten rows at a time, in time with the rate."""
        random, done, number, due = Random(key), self.written.setdefault(key, []), 0, monotonic()
        columns = "create_time, kafka_topic, kafka_key, kafka_value"
        with closing(self.box.dialect.session()) as session:
            idiom = session.idiom
            table = quoted(idiom, self.box.dialect.names(session).outbox)
            sql = f"INSERT INTO {table} ({columns}) VALUES ({{at}}, 'orders', {{key}}, {{value}})"
            while not self.ended.is_set():
                values = [f"{key}-{number + each}" for each in range(ROWS)]
                number += ROWS
                at = idiom.time_parameter(self.now - random.choice([0, 0, 0, 1]) * DAY)
                pause = 0.3 if random.random() < STAYS_OPEN else 0.0
                with self.timed("insert", pause), session.transaction("write"):
                    session.execute_many(sql, [{"at": at, "key": key, "value": each} for each in values])
                    sleep(pause)
                done += values
                due += ROWS * WRITERS / self.rate
                sleep(max(0.0, due - monotonic()))

    def harvest(self) -> None:
        """Marks and purges until nothing is left."""
        hand = self.box.lead()
        while True:
            ended = self.written_all.is_set()
            with self.timed("mark"):
                marked = hand.mark(ALL)
            for each, value in zip(marked, texts(marked), strict=True):
                self.delivered[each.key].append(value)
            if marked:
                with self.timed("purge"):
                    purged = hand.purge(*[each.id for each in marked])
                assert purged == len(marked), "rows that were marked are gone"
            elif ended:
                return
            sleep(0.01)

    def pass_days(self, days: int, seconds: float) -> int:
        """Lets days pass, with a look at the partitions ten times a day; returns how many went."""
        table, gone = self.box.connect(), 0
        for _ in range(days):
            self.now += DAY
            for _ in range(10):
                before = self._days()
                began = monotonic()
                tended = table.tend_days()
                assert not tended.faults, tended.faults
                after = self._days()
                if before != after:
                    self.took["change of partitions"].append((began, monotonic()))
                    gone += len(before - after)
                sleep(seconds / 10)
        return gone

    def _days(self) -> set[object]:
        with closing(self.box.dialect.session()) as session:
            return set(Days(session, divided_outbox(self.box.dialect.names(session).outbox)).found() or ())

    def report(self) -> None:
        """Says what was lost, and how long things took beside changes of partitions and else."""
        wrong = [key for key, values in self.written.items() if values != self.delivered[key]]
        rows = sum(map(len, self.written.values()))
        print(f"{rows:,} rows, keys with lost, repeated or overtaken rows: {wrong or 'none'}")
        changes = self.took["change of partitions"]
        print(f"{len(changes)} changes of partitions, the longest {longest(changes):.0f} ms")
        for what in ("insert", "mark", "purge"):
            beside = [each for each in self.took[what] if any(overlap(each, change) for change in changes)]
            others = [each for each in self.took[what] if each not in set(beside)]
            print(
                f"{what}: longest beside a change {longest(beside):.0f} ms ({len(beside)}),"
                f" else {longest(others):.0f} ms ({len(others)})"
            )


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether two intervals have a moment in common."""
    return one[0] < other[1] and other[0] < one[1]


def longest(some: list[tuple[float, float]]) -> float:
    """Returns the longest of some intervals in milliseconds."""
    return max((end - begin for begin, end in some), default=0.0) * 1000


def outbox_on(server: str, stack: ExitStack) -> Box:
    """Starts a server, and creates an outbox in partitions."""
    running = stack.enter_context(SERVERS[server]())
    if server == "postgres":
        under = OutboxUnderTest("postgres", {"data_source": running.dsn, "by_day": True})
    else:
        source = running.create_database("days") + "?ssl-mode=DISABLED"
        under = OutboxUnderTest("mysql", {"data_source": source, "by_day": True})
    box = Box(under, stack)
    box.dialect.create()
    return box


def run(month: Month, days: int, seconds: float) -> int:
    """Lets days pass under load; returns how many partitions went."""
    writers = [threading.Thread(target=month.write, args=(f"w{number}",)) for number in range(WRITERS)]
    harvester = threading.Thread(target=month.harvest)
    for thread in (*writers, harvester):
        thread.start()
    gone = month.pass_days(days, seconds)
    month.ended.set()
    for thread in writers:
        thread.join()
    month.written_all.set()
    harvester.join()
    return gone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=SERVERS, action="append", help="default: all, one after another")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each day")
    parser.add_argument("--rate", type=float, default=1000.0, help="rows a second")
    arguments = parser.parse_args()
    for server in arguments.server or SERVERS:
        with ExitStack() as stack:
            month = Month(outbox_on(server, stack), arguments.rate)
            with mock.patch.object(Days, "now", lambda _self, month=month: month.now):
                gone = run(month, arguments.days, arguments.seconds)
            print(f"\n{server}: {gone} partitions went under load in {arguments.days} days")
            month.report()


if __name__ == "__main__":
    main()
