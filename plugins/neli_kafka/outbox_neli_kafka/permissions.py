"""The permissions that a member of the election needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    AdminClient,
)

from outbox_neli_kafka.errors import driver_error, is_refusal
from outbox_neli_kafka.options import NeliOptions

TIMEOUT: Final = 5.0
"""Seconds to wait for each of the broker's answers."""

_START_SECONDS: Final = 30.0
"""Seconds to wait at the start until the group has a coordinator, without which there is no election.

Long, because librdkafka 2.16 may abort the process after a request that has run out of time before there was
a coordinator (an assertion in rd_kafka_enq_once_del_source_return).
"""


def required(options: NeliOptions) -> str:
    """Returns what an administrator must grant, for messages."""
    return f"grant READ on group '{options.group}', and READ, WRITE and DESCRIBE on topic '{options.topic}'"


def missing_on_group(admin: AdminClient, group: str, timeout: float = TIMEOUT) -> Sequence[str]:
    """Returns the names of the operations on ``group`` that are not granted, as far as the broker tells.

    Raises:
        KafkaException: The broker does not answer, or hides the group.
    """
    [future] = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=timeout
    ).values()
    try:
        return _missing(future.result().authorized_operations, [AclOperation.READ])
    finally:
        del future  # holds its error, whose traceback holds this frame: a cycle that would keep the client


def missing_on_topic(admin: AdminClient, topic: str) -> Sequence[str]:
    """Returns the names of the operations on ``topic`` that are not granted, as far as the broker tells.

    Raises:
        KafkaException: The broker does not answer, or hides the topic.
    """
    [future] = admin.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, request_timeout=TIMEOUT
    ).values()
    try:
        return _missing(future.result().authorized_operations, [AclOperation.READ, AclOperation.WRITE])
    finally:
        del future  # as above


def ensure_group(admin: AdminClient, options: NeliOptions, settings: Mapping[str, Any]) -> None:
    """Checks that the broker does not refuse the group; ignores other errors.

    Raises:
        DriverError: The broker refuses.
    """
    try:
        missing_on_group(admin, options.group, _START_SECONDS)
    except KafkaException as error:
        if is_refusal(error.args[0]):
            what = f"cannot join the election; {required(options)}"
            raise driver_error(what, error.args[0], settings) from error


def _missing(granted: Sequence[AclOperation] | None, required: Sequence[AclOperation]) -> Sequence[str]:
    return [] if granted is None else [each.name for each in required if each not in granted]
