"""A stasher counts the bytes of a message as the client does, and says what the client says."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer
from outbox_api import Bounds, Record
from outbox_api.base.bounds import message_bytes
from outbox_kafka import KafkaOptions
from outbox_kafka.errors import is_permanent, reason

LARGEST = 20_000


def is_accepted(record: Record) -> bool:
    """Returns whether the client takes a record; there is no broker."""
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": LARGEST, "log_level": 0})
    try:
        producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
    except KafkaException as refused:
        error = refused.args[0]
        assert is_permanent(error)
        assert reason(error, {}) == Bounds(LARGEST).refusal(record)
        return False
    finally:
        producer.purge()
        producer.flush(10)
    return True


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("", None), ("a", ""), ("b", b"\0"), ("ü", "ö")),
        (("n" * 63, "v" * 64), ("m" * 64, "w" * 63)),
        (("name", "v" * 8191), ("name", b"w" * 8192)),
    ],
)
@pytest.mark.parametrize("key", ["", "Schlüssel"])
def test_the_largest_record_is_the_same(
    key: str, headers: tuple[tuple[str, str | bytes | None], ...]
) -> None:
    room = LARGEST - message_bytes(Record("t", key, "", headers))
    largest, larger = (Record("t", key, "v" * size, headers) for size in (room, room + 1))
    assert message_bytes(largest) == LARGEST
    assert Bounds(LARGEST).refusal(largest) == ""
    assert is_accepted(largest)
    assert not is_accepted(larger)


def test_the_settings_say_how_large_a_message_may_be() -> None:
    assert KafkaOptions({}).max_message_bytes == 1_000_000
    assert KafkaOptions({"message.max.bytes": "2000"}).max_message_bytes == 2000
