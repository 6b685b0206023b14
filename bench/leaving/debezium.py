"""From Debezium's outbox event router, and back to it."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from outbox_servers.services.process import free_port

from bench.compare.databases import POSTGRES
from bench.compare.peers import Debezium
from bench.compare.servers import Place, Servers
from bench.leaving import outboxes
from bench.leaving.application import ROUTE, EventTable, open_shop, paused, router
from bench.leaving.verdict import Moments, Verdict, judge
from tests.harvesters import until
from tests.shop import Shop

KAFKA = "4.1.0"
FORMER, NEW = "outbox", "outbox_again"
"""The connectors."""
READY = """
SELECT FROM pg_replication_slots
WHERE slot_name = '{}' AND active AND confirmed_flush_lsn IS NOT NULL
"""
BEHIND = {"poll.interval.ms": "8000"}
"""Settings of a connector that is behind when it is left, as on a busy machine."""
WITNESS = "passer-by"
"""The customer of two events that show that Debezium has sent all before them."""


class Connect:
    """The interface of Kafka Connect."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request; returns the content of the answer, if it has any."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self._address}/connectors{path}", data, headers, method=method)
        with urlopen(request, timeout=60) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def stop(self) -> None:
        """Stops the former connector, and waits until its tasks have ended."""
        self.ask("PUT", f"/{FORMER}/stop")

        def ended() -> bool:
            status = self.ask("GET", f"/{FORMER}/status")
            return status["connector"]["state"] == "STOPPED" and not status["tasks"]

        until(ended, "the connector's tasks end", 60, pause=0.2)

    def create_anew(self) -> None:
        """Creates a connector with another name and another slot, which reads what is written from now on."""
        config = self.ask("GET", f"/{FORMER}/config")
        changed = {"name": NEW, "slot.name": f"{config['slot.name']}_again", "snapshot.mode": "no_data"}
        self.ask("POST", "", {"name": NEW, "config": {**config, **changed}})


def wait_for_slot(shop: Shop, slot: str) -> None:
    """Waits until a slot is in use; one that is still being created is active, and has confirmed nothing."""
    until(lambda: shop.database.fetch(READY.format(slot)), f"the slot {slot} is ready", 60)


def drain(shop: Shop, slot: str) -> None:
    """Waits until Debezium has sent, and its slot has confirmed, all that is written so far."""
    [(noted,)] = shop.database.fetch("SELECT pg_current_wal_insert_lsn()")
    with closing(shop.database.connect()) as connection:
        for number in (1, 2):
            shop.sell(connection, WITNESS, number, "witness")
            connection.commit()
    until(lambda: shop.numbers().get(WITNESS) == [1, 2], "the witnesses are in their topic", 60, pause=0.5)
    confirmed = (
        f"SELECT confirmed_flush_lsn >= '{noted}' FROM pg_replication_slots WHERE slot_name = '{slot}'"
    )
    until(lambda: shop.database.fetch(confirmed) == [(True,)], "the slot confirms", 120, pause=0.5)


def delete_sent(shop: Shop, *, pause: bool) -> None:
    """Deletes what Debezium has sent: everything after a pause, otherwise what the topic shows."""
    with shop.connect() as connection:
        if pause:
            connection.execute("DELETE FROM outboxevent")
            return
        sent = [dict(message.headers() or [])["id"] for message in shop.messages()]
        ids = [each.decode() for each in sent if isinstance(each, bytes)]
        connection.execute("DELETE FROM outboxevent WHERE id = ANY(%s::uuid[])", (ids,))


def settings_of(shop: Shop, folder: Path, delivery: str) -> Path:
    """Writes the file of outbox."""
    headers = {"id": "id", "Seq": "seq"}
    intake = {"table": "outboxevent", "layout": "debezium", "headers": headers}
    harvest = {
        "baseKafkaConfig": {"bootstrap.servers": shop.kafka.bootstrap},
        "producerKafkaConfig": {"partitioner": "murmur2_random"},
        "dataSource": shop.dsn,
        "dialect": {"driver": "postgres", "intake": intake},
        "delivery": delivery,
    }
    path = folder / "outbox.yaml"
    path.write_text(json.dumps({"harvest": harvest}))
    return path


def play(servers: Servers, folder: Path, delivery: str, *, pause: bool, seconds: float) -> Verdict:
    """Makes one round: Debezium, outbox, Debezium. Comments are the steps of the page.

    Args:
        servers: Database and broker.
        folder: For files and logs.
        delivery: The mode of outbox.
        pause: Whether writers pause on the way there; on the way back they always do.
        seconds: For how long each delivers between two changes.
    """
    name = f"shop_{folder.name}"
    database = EventTable(servers.database.make(name))
    shop = open_shop(database, servers.kafka, f"{ROUTE}sale-{folder.name}")
    place = Place(shop.dsn, name, shop.topic, folder, servers)
    address = f"http://127.0.0.1:{free_port()}"
    worker = {"listeners": address, "offset.flush.interval.ms": "5000"}  # a minute by default
    debezium = Debezium(FORMER, POSTGRES, connector={**router("outboxevent"), **BEHIND}, worker=worker)
    debezium.prepare()
    connect = Connect(address)
    with ExitStack() as stack:
        stack.enter_context(debezium.running(place))
        wait_for_slot(shop, name)
        with shop.selling():
            time.sleep(seconds)
            # From Debezium. 1:
            database.deleting = False
            settings = settings_of(shop, folder, delivery)  # 2
            outboxes.prepare(settings)
            with paused(shop, pause):  # 3
                drain(shop, name)  # 4
                moments = Moments(there=time.time())
                connect.stop()  # 5
                delete_sent(shop, pause=pause)  # 6
                harvesters = outboxes.start(stack, settings)  # 7
            outboxes.check(settings)  # 8
            moments.arrived = time.time()
            with shop.connect() as connection:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))  # 9
            time.sleep(seconds)
            # Go back. 1:
            with paused(shop, True):
                outboxes.wait_for_backlog(settings, 0)  # 2
                moments.back = time.time()
                outboxes.leave(harvesters)
                connect.create_anew()  # 3
                wait_for_slot(shop, f"{name}_again")
            database.deleting = True  # 4
            time.sleep(seconds)
        wait_for_all(shop, moments)
        return judge(shop, moments)


def wait_for_all(shop: Shop, moments: Moments) -> None:
    """Waits until the topic has all that was committed; after a minute it does not come any more."""
    deadline = time.monotonic() + 60
    while judge(shop, moments).result.lost and time.monotonic() < deadline:
        time.sleep(1)
