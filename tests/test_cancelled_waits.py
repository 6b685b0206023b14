"""Waits for a synchronous standby that is away are cancelled, the primary dies, the standby takes over."""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from outbox_servers.services import Kafka

from . import standbys
from .harvesters import RUN, SHORT_RUNS, Fleet, Measure, until
from .promotion import Pair
from .shop import Shop
from .topics import sequence

RECORDS = 2000
KEYS = 20
CANCEL = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
CANCELLING_SECONDS = 10.0
"""How long commits are cancelled before the primary dies; records are published meanwhile."""


def cancel(dsn: str, ending: Event) -> None:
    """Cancels each wait for a standby, as an impatient operator does."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        while not ending.wait(0.05):
            admin.execute(CANCEL)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_was_published_while_waits_were_cancelled_is_not_published_again(
    tmp_path: Path, kafka_broker: Kafka, topic: str, measure: Measure, delivery: str
) -> None:
    with Pair("postgres") as pair:
        shop = Shop(pair.database, kafka_broker, topic)
        shop.open()
        fleet = Fleet(tmp_path, shop)
        with closing(fleet):
            pair.replicate()
            standbys.ask(pair.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
            standbys.ask(pair.primary, "SELECT pg_reload_conf()")
            leader = fleet.start(
                "leader", delivery=delivery, dataSource=pair.through(pair.leader), limits=SHORT_RUNS
            )
            leader.wait_for("leader acquired", 60)
            shop.stash(10, keys=1)
            until(lambda: not shop.database.fetch("SELECT 1 FROM outbox"), "it harvests", 60)
            leader.send(signal.SIGSTOP)
            shop.stash(RECORDS, keys=KEYS, start=11)
            standbys.wait_for_standby(pair.primary, pair.standby)
            pair.lag()
            ending = Event()
            canceller = Thread(target=cancel, args=(pair.primary.dsn, ending))
            canceller.start()
            leader.send(signal.SIGCONT)
            time.sleep(CANCELLING_SECONDS)
            ending.set()
            canceller.join()
            pair.primary.kill()
            time.sleep(1.0)  # what is on its way to Kafka arrives
            before = [(each.key(), sequence(each)) for each in shop.messages()]
            pair.promote()
            for proxy in (pair.name, pair.leader):
                pair.move(proxy)
            until(lambda: not shop.database.fetch("SELECT 1 FROM outbox"), "all is harvested", 120, pause=0.5)
            time.sleep(1.0)
            arrived = [(each.key(), sequence(each)) for each in shop.messages()]
            log = leader.log.read_text()
    counts = Counter(arrived)
    twice = sum(times - 1 for times in counts.values())
    latest: dict[object, int] = {}
    disordered = 0
    for key, number in arrived:
        disordered += (number or 0) < latest.get(key, -1)
        latest[key] = max(latest.get(key, -1), number or 0)
    measure("records published while waits were cancelled", len(set(before)))
    measure("records that arrived again", twice)
    measure("messages behind a later one of their key", disordered)
    assert "canceling wait for synchronous replication" in log
    assert len(counts) == RECORDS + 10
    if delivery == "exactly-once":
        assert (twice, disordered) == (0, 0)
    else:
        assert twice <= RUN * KEYS
