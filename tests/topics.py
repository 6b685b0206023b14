"""Reads topics: their ends, and the messages that readers of committed messages receive."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    OffsetSpec,
)
from outbox_audit import SEQUENCE_HEADER

READ_SECONDS = 60.0
"""Seconds to read everything; an abandoned transaction stays open until its timeout."""


def ends(admin: AdminClient, topic: str, partitions: int) -> dict[int, int]:
    """Returns partition → the offset behind a topic's last message, committed or not."""
    everywhere = {TopicPartition(topic, part): OffsetSpec.latest() for part in range(partitions)}
    found = admin.list_offsets(everywhere)
    return {place.partition: int(end.result(60).offset) for place, end in found.items()}


def messages(bootstrap: str, topic: str, until: Mapping[int, int]) -> list[Message]:
    """Returns the committed messages of a topic before these ends, in the order of each partition."""
    name = {"group.id": "shop", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **name})
    try:
        left = {part for part, end in until.items() if end}
        consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in left])
        found: list[Message] = []
        deadline = time.monotonic() + READ_SECONDS
        while left:
            assert time.monotonic() < deadline, f"partitions {left} do not come to their ends"
            for message in consumer.consume(1000, 0.2):
                part, offset = place(message)
                if message.error() is None:
                    found.append(message)
                    offset += 1
                # The last offset may be a control record of a transaction; only PARTITION_EOF shows that.
                if offset >= until[part]:
                    left.discard(part)
    finally:
        consumer.close()
    return found


def place(message: Message) -> tuple[int, int]:
    """Returns partition and offset of a message or of a ``PARTITION_EOF`` event."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None, message.error()
    assert offset is not None
    return partition, offset


def sequence(message: Message) -> int | None:
    """Returns the number in a record of an application."""
    value = dict(message.headers() or []).get(SEQUENCE_HEADER)
    return int(value) if value is not None else None
