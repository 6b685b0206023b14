"""``python -m tests.promotion``: promotes a replica that lags, and counts what is repeated and what is lost.

The same happens when a backup is restored: rows that were purged since are back, and the fence is set back.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from outbox_servers.services import Kafka, KafkaBroker, MariaDbServer, PostgresServer

from . import standbys
from .databases import Database, MySql, Postgres
from .faults.proxy import MYSQL, POSTGRES, Proxy
from .harvesters import Fleet, Harvester, until
from .shop import Shop
from .topics import sequence

HOWS = ("crash", "runbook", "partition")
DATABASES = ("postgres", "mariadb")
DELIVERIES = ("at-least-once", "exactly-once")
PAUSE_SECONDS = 0.03
CATCH_UP_SECONDS = 120.0
LANES = 2
IDS = 100_000_000
"""Beyond all that the lost primary gave."""
BACKLOG = 500
"""Rows that the replica still has when they have long been published and purged."""
_OLD = "SELECT id FROM outbox WHERE kafka_key BETWEEN 'key-' AND 'key-z'"
"""What is left of these."""


@dataclass
class Count:
    """What one promotion did, in records.

    Attributes:
        database: The database.
        delivery: The mode of delivery.
        how: ``crash``: the primary is killed, and its leader reconnects to the promoted replica.
            ``runbook``: as ``crash``, and the ids and the token are raised first, as docs/backup.md says.
            ``partition``: the leader stays connected to the former primary, which lives, while another one
            leads at the replica.
        lag: Seconds for which the replica had received nothing.
        sold: Records that the promoted database knows of.
        lost: Those of them that never arrived.
        overtaken: Those that arrived for the first time behind a later one of their key.
        phantoms: Records that arrived, and whose sale was lost with the primary.
        rows: What the promoted outbox held at that moment.
        published: Those of them that had arrived before.
        repeats: Messages that were not the first of their record.
        flow: Seconds from the promotion to the first arrival of a record that was sold after it.
        fenced: Whether no leader had a token that another one had in the history that was lost.
    """

    database: str
    delivery: str
    how: str
    lag: float
    sold: int = 0
    lost: int = 0
    overtaken: int = 0
    phantoms: int = 0
    rows: int = 0
    published: int = 0
    repeats: int = 0
    flow: float = 0.0
    fenced: bool = False


class Pair:
    """A primary and an asynchronous replica; a context manager.

    Attributes:
        name: Leads to the primary, for the application.
        leader: Leads to the primary, for the harvester that leads.
        database: The shop's database, by its name.
    """

    def __init__(self, kind: str) -> None:
        self._stack = ExitStack()
        self.primary: Any = (
            PostgresServer() if kind == "postgres" else MariaDbServer(settings=standbys.MARIADB)
        )
        self._mysql = kind == "mariadb"
        self._targets: dict[Proxy, Any] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self.primary)
        self.standby: Any = None
        self.name = self._proxy()
        self.leader = self._proxy()
        self.dsn = self.primary.create_database("shop")
        self.database: Database = (MySql if self._mysql else Postgres)(self.through(self.name))
        self._stack.callback(self.database.fence.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _proxy(self) -> Proxy:
        proxy = Proxy(lambda: self._targets[proxy].port, MYSQL if self._mysql else POSTGRES)
        self._targets[proxy] = self.primary
        self._stack.callback(proxy.close)
        return proxy

    def through(self, proxy: Proxy) -> str:
        """Returns the data source that goes through a proxy."""
        if self._mysql:
            return str(self.dsn).replace(f":{self.primary.port}/", f":{proxy.port}/")
        return standbys.named(self.dsn, proxy.port)

    def replicate(self) -> None:
        """Starts the replica, and waits until it has everything."""
        copy = standbys.mariadb_standby if self._mysql else standbys.postgres_standby
        self.standby = copy(self.primary)
        self._stack.callback(self.standby.close)

    def lag(self) -> None:
        """Cuts the replica off."""
        if self._mysql:
            standbys.ask(self.standby, "STOP SLAVE IO_THREAD")
        else:
            standbys.stop_receiving(self.standby)

    def promote(self) -> None:
        """Makes the replica a primary, to which the name leads as soon as :meth:`move` is called."""
        (standbys.promote_mariadb if self._mysql else standbys.promote)(self.standby)

    def move(self, proxy: Proxy) -> None:
        """Makes a proxy lead to the replica, and cuts its connections."""
        self._targets[proxy] = self.standby
        proxy.cut()


def trial(  # noqa: PLR0917 - what a trial is made of
    folder: Path, kafka: Kafka, database: str, delivery: str, how: str, lag: float
) -> Count:
    """Promotes a replica that lags while records are sold and harvested; returns what that did."""
    count = Count(database, delivery, how, lag)
    with Pair(database) as pair, ExitStack() as stack:
        shop = Shop(pair.database, kafka, f"promoted-{delivery}-{how}-{database}-{int(time.time())}")
        shop.open()
        pair.database.dialect.create()
        fleet = Fleet(folder, shop)
        stack.callback(fleet.close)
        with shop.selling(PAUSE_SECONDS):
            # A former leader's token is in the replica, the present leader's is not.
            former = _start(fleet, pair, "former", pair.leader, count)
            shop.wait_for_sales(50)
            former.kill()
            shop.stash(BACKLOG, keys=20)
            pair.replicate()
            pair.lag()
            _start(fleet, pair, "leader", pair.leader, count)
            time.sleep(lag)
            until(lambda: not shop.database.fetch(_OLD), "the leader publishes what is old", CATCH_UP_SECONDS)
            if how != "partition":
                pair.primary.kill()
            shop.calm.set()
            time.sleep(0.5)
            pair.promote()
            arrived = {(_key(each), sequence(each)) for each in shop.messages()}
            pair.move(pair.name)
            waiting = _waiting(shop)
            count.rows, count.published = len(waiting), len(arrived & waiting)
            if how == "runbook":
                _raise_ids_and_token(pair)
            if how != "partition":
                pair.move(pair.leader)
            promoted_at = time.time()
            shop.calm.clear()
            if how == "partition":
                _start(fleet, pair, "successor", pair.name, count)
            shop.wait_for_sales(50)
            count.flow = _first_arrival(shop, promoted_at) - promoted_at
            if how == "partition":  # it is over: the former leader finds the promoted database
                pair.move(pair.leader)
            shop.wait_for_sales(50)
        shop.wait_until_harvested(CATCH_UP_SECONDS)
        time.sleep(1.0)  # copies that are late
        tokens = [token for each in fleet.harvesters for token in _tokens(each)]
        count.fenced = len(set(tokens)) == len(tokens)
        _enter(count, shop)
    return count


def _start(fleet: Fleet, pair: Pair, name: str, proxy: Proxy, count: Count) -> Harvester:
    harvester = fleet.start(
        name,
        delivery=count.delivery,
        elector={"driver": "lease", "sessionTimeout": "3s"},
        dataSource=pair.through(proxy),
        limits={"sendConcurrency": LANES, "minMetricsInterval": "1s"},
    )
    harvester.wait_for("leader acquired", 60)
    return harvester


def _raise_ids_and_token(pair: Pair) -> None:
    statement = (
        f"ALTER TABLE outbox AUTO_INCREMENT = {IDS}"
        if isinstance(pair.database, MySql)
        else f"SELECT setval(pg_get_serial_sequence('outbox', 'id'), {IDS})"
    )
    with closing(pair.database.connect()) as connection:
        pair.database.execute(connection, statement)
        connection.commit()
    with closing(pair.database.dialect.connect()) as table:
        table.bump(LANES, "operator")


def _tokens(harvester: Harvester) -> list[str]:
    """Returns the tokens under which a process has led."""
    return re.findall(r"leader acquired: .*fence token (\d+)", harvester.log.read_text())


def _key(message: Any) -> str:
    return str((message.key() or b"").decode())


def _waiting(shop: Shop) -> set[tuple[str, int]]:
    """Returns the records in the outbox, which tell their numbers in their values."""
    rows = shop.database.fetch("SELECT kafka_key, kafka_value FROM outbox")
    return {(str(key), int(str(value).removeprefix("sale "))) for key, value in rows}


def _first_arrival(shop: Shop, since: float) -> float:
    def sold_since() -> list[float]:
        return [
            each.timestamp()[1] / 1000
            for each in shop.messages()
            if shop.commits.get((_key(each), sequence(each) or 0), 0.0) >= since
        ]

    arrived: list[float] = until(sold_since, "records flow again", CATCH_UP_SECONDS, pause=0.2)
    return min(arrived)


def _enter(count: Count, shop: Shop) -> None:
    sold = shop.sold()
    arrived = Counter((_key(each), sequence(each) or 0) for each in shop.messages())
    result = shop.audit()
    count.sold, count.lost, count.overtaken = len(sold), len(sold - set(arrived)), result.overtaken
    count.phantoms = len(set(arrived) - sold)
    count.repeats = sum(arrived.values()) - len(arrived)
    assert set(arrived) - sold <= set(shop.commits), "a record arrived that nobody had committed anywhere"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.promotion", description=__doc__)
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--delivery", choices=DELIVERIES, action="append")
    parser.add_argument("--how", choices=HOWS, action="append")
    parser.add_argument("--lag", type=float, default=5.0, help="seconds (default 5)")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args(arguments)
    lost = 0
    with KafkaBroker() as kafka:
        for _, database, delivery, how in _combinations(options):
            with tempfile.TemporaryDirectory(prefix="promotion-") as folder:
                count = trial(Path(folder), kafka, database, delivery, how, options.lag)
            sys.stdout.write(json.dumps(asdict(count)) + "\n")
            sys.stdout.flush()
            lost += count.lost + count.overtaken + (not count.fenced)
    return 1 if lost else 0


def _combinations(options: argparse.Namespace) -> Iterator[tuple[int, str, str, str]]:
    for number in range(options.rounds):
        for database in options.database or DATABASES:
            for delivery in options.delivery or DELIVERIES:
                for how in options.how or HOWS:
                    yield number, database, delivery, how


if __name__ == "__main__":
    sys.exit(main())
