"""A lane of a version before 0.3 is taken over: its checkpoint is the metadata of an offset."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from psycopg.rows import namedtuple_row

from .harvesters import Fleet
from .shop import OpenShop, Shop
from .switchboard import Switchboard, recovered, wait_for_lanes

MARK = """
WITH earliest AS (SELECT id FROM outbox WHERE leader_id IS NULL ORDER BY id LIMIT %s)
UPDATE outbox AS o SET leader_id = %s FROM earliest WHERE o.id = earliest.id RETURNING o.*
"""
NOTE = "UPDATE outbox_fence SET marker_place = %s WHERE lane = 0 RETURNING sender"


@pytest.fixture
def shop(open_shop: OpenShop, switchboard: Switchboard) -> Shop:
    return open_shop(switchboard.kafka)


class FormerLane:
    """Marks and publishes as a lane of an earlier version did; its end leaves all as a crash does."""

    def __init__(self, shop: Shop, connection: psycopg.Connection[Any], sender: str, topic: str) -> None:
        own = {"bootstrap.servers": shop.kafka.bootstrap}
        name = f"outbox.{sender}"
        self._connection = connection
        self._topic = topic
        self._consumer = Consumer({**own, "group.id": name})
        self._producer = Producer({**own, "transactional.id": name, "partitioner": "consistent"})
        self._producer.init_transactions(20)
        self._in_log: list[str] = []

    def mark(self, rows: int) -> tuple[UUID, list[Any]]:
        """Marks the earliest rows; returns the leader id, and the rows in the order of their ids."""
        leader = uuid4()
        with self._connection.cursor(row_factory=namedtuple_row) as cursor:
            return leader, sorted(cursor.execute(MARK, (rows, leader)), key=lambda row: row.id)

    def publish(self, rows: int, *, commits: bool) -> list[int]:
        """Publishes rows in a transaction with the checkpoint; returns their ids."""
        leader, marked = self.mark(rows)
        ids = [row.id for row in marked]
        self._in_log.append(f"{leader.hex}:{ids[0]}:{ids[-1]}")
        producer = self._producer
        producer.begin_transaction()
        for row in marked:
            headers = list(zip(row.kafka_header_keys, row.kafka_header_values, strict=True))
            producer.produce(row.kafka_topic, row.kafka_value, row.kafka_key, headers=headers)
        checkpoint = f"1 {','.join(self._in_log)}"
        group = self._consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(self._topic, 0, 0, checkpoint)], group, 20)
        producer.flush(20)
        if commits:
            producer.commit_transaction(20)
        return ids

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.slow("upgrade")
def test_what_an_earlier_version_has_committed_is_purged_and_all_else_published_once(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    settings = {**switchboard.settings, "limits": {"sendConcurrency": 1, "minMetricsInterval": "1s"}}
    first = fleet.start("first", **settings)
    first.wait_for("leader acquired", 60)
    wait_for_lanes(shop, 1)
    first.kill()

    # Upgrades keep the tables. Only the note, the checkpoint and the marked rows are of the earlier version.
    marker = f"{shop.topic}.marker"
    shop.create_topic(name=marker)
    location = f"{shop.admin.list_topics(timeout=20).cluster_id}/{marker}"
    shop.stash(200, keys=20)
    with shop.connect() as connection:
        [(sender,)] = connection.execute(NOTE, (location,)).fetchall()
        with closing(FormerLane(shop, connection, sender, marker)) as lane:
            half_purged = lane.publish(50, commits=True)
            connection.execute("DELETE FROM outbox WHERE id = ANY (%s)", (half_purged[10:35],))
            lane.publish(40, commits=True)
            lane.publish(30, commits=False)
            lane.mark(20)
            second = fleet.start("second", **settings)
            shop.wait_until_harvested(60)

        result = shop.audit()
        assert (result.delivered, result.lost, result.foreign) == (200, 0, 0), result.summary()
        assert (result.repeated, result.out_of_order) == (0, 0), result.summary()
        assert recovered(second) == 25 + 40
        second.kill()

        # It needs the earlier checkpoint no more: it has written and noted its own.
        [(noted,)] = connection.execute("SELECT marker_place FROM outbox_fence WHERE lane = 0").fetchall()
        assert noted.rpartition("/")[0] != location
    shop.admin.delete_topics([marker])[marker].result(60)
    shop.stash(10, keys=10, start=201)
    last = fleet.start("last", **settings)
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert (result.delivered, result.repeated, result.out_of_order) == (210, 0, 0), result.summary()
    last.leave()
