"""Publishes to Kafka, reads from it, and changes topics, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from outbox_api import Deliveries, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.sender import KafkaSender
from outbox_kafka.transactional_sender import KafkaTransactionalSender
from outbox_servers.services.kafka import KafkaBroker


def publisher(bootstrap: str, **settings: object) -> KafkaPublisher:
    """Creates a publisher; names of settings have underscores instead of dots."""
    kafka = {
        "bootstrap.servers": bootstrap,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return KafkaPublisher(KafkaOptions(kafka))


def gather(sender: KafkaSender, count: int, limit: float = 60) -> Deliveries:
    """Polls until there are reports for ``count`` records."""
    gathered, deadline = Deliveries(), time.monotonic() + limit
    while len(gathered.delivered) + len(gathered.failed) < count:
        assert time.monotonic() < deadline, f"only {gathered} after {limit} s"
        reports = sender.poll(1)
        gathered.delivered += reports.delivered
        gathered.failed += reports.failed
    return gathered


def deliver(sender: KafkaSender, *records: MarkedRecord) -> None:
    """Sends records one after the other, each again until it is delivered: a broker may not be there yet."""
    deadline = time.monotonic() + 60
    for record in records:
        sender.send([record])
        while not gather(sender, 1).delivered:
            assert time.monotonic() < deadline
            sender.send([record])


def consume(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    """Reads ``count`` messages from the topic's beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    messages: list[Message] = []
    deadline = time.monotonic() + 60
    while len(messages) < count:
        assert time.monotonic() < deadline
        messages += consumer.consume(count - len(messages), timeout=0.5)
    consumer.close()
    return messages


def committed(bootstrap: str, topic: str, partitions: int) -> list[Message]:
    """Reads every committed message; waits until all transactions up to the present end are closed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    latest = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)[1]
        for partition in range(partitions)
    }
    messages: list[Message] = []
    deadline = time.monotonic() + 60
    while latest:
        assert time.monotonic() < deadline, f"an open transaction before {latest}"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            messages.append(message)
            continue
        assert error.code() == KafkaError._PARTITION_EOF
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if offset >= latest.get(partition, 0):
            latest.pop(partition, None)
    consumer.close()
    return messages


def written(bootstrap: str, topic: str, partitions: int) -> int:
    """Returns how many messages there are, committed or not."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, part), 20) for part in range(partitions)]
    consumer.close()
    return sum(end for _, end in ends)


def values(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Returns the numbers that committed messages have as values, in ascending order."""
    return sorted(int(message.value() or b"") for message in committed(bootstrap, topic, partitions))


def checkpoint_of(sender: KafkaTransactionalSender, location: str = "") -> str | None:
    """Returns the checkpoint of the lane's last attempt, if there is any."""
    attempt = sender.attempt(location)
    return attempt and attempt.checkpoint


def found(sender: KafkaTransactionalSender, records: Sequence[MarkedRecord]) -> list[int]:
    """Returns the ids of those records of the lane's last attempt that are in the log."""
    attempt = sender.attempt()
    assert attempt is not None
    answer = sender.find(records, attempt.trace)
    assert not answer.undecided
    return sorted(answer.published)


def alter_topic(bootstrap: str, topic: str, name: str, value: str) -> None:
    """Changes a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)

    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def is_shown() -> bool:
        found = admin.describe_configs([asked])[asked].result(60)
        return bool(found[name].value == value)

    _until(is_shown, f"{name} is not {value}")  # the broker learns of it from the controller


def grant(broker: KafkaBroker, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    """Lets the user ``app`` do something with all that begins with a name."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    whole = kind == ResourceType.BROKER  # there is only one
    pattern = ResourcePatternType.LITERAL if whole else ResourcePatternType.PREFIXED
    bindings = [
        AclBinding(kind, name, pattern, "User:app", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for future in admin.create_acls(bindings).values():
        future.result(60)
    _until(lambda: all(_shows(admin, binding) for binding in bindings), "it is not granted")  # as above


def _shows(admin: AdminClient, binding: AclBinding) -> bool:
    wanted = AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
    return bool(admin.describe_acls(wanted).result(60))


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)
