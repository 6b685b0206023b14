"""The topic of the election, and the permissions that a member of it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    AdminClient,
    NewTopic,
)
from outbox_api import AccessDenied, DriverError
from outbox_kafka.client import errors
from outbox_kafka.client.admin import KafkaAdmin
from outbox_kafka.client.errors import describe

from outbox_neli_kafka.settings import NeliOptions


def is_refusal(error: KafkaError) -> bool:
    """Returns whether the broker refuses this process, its group or its topic: a retry alone is no use."""
    return errors.is_refusal(error) or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def driver_error(what: str, error: KafkaError, settings: Mapping[str, Any]) -> DriverError:
    """Creates an error that says what failed and why, without the secrets in ``settings``."""
    message = f"{what}: {describe(error, settings)}"
    return AccessDenied(message) if is_refusal(error) else DriverError(message, retryable=True)


TIMEOUT: Final = 5.0
_START_SECONDS: Final = 30.0
"""Seconds to wait at the start until the group has a coordinator, without which there is no election.

Long, because librdkafka 2.16 may abort the process after a request that has run out of time before there was
a coordinator (an assertion in rd_kafka_enq_once_del_source_return).
"""


def required(options: NeliOptions) -> str:
    """Returns what an administrator must grant, for messages."""
    return f"grant READ on group '{options.group}', and READ and DESCRIBE on topic '{options.topic}'"


def missing_on_group(admin: AdminClient, group: str, timeout: float = TIMEOUT) -> Sequence[str]:
    """Returns the names of the operations on ``group`` that are not granted, as far as the broker tells."""
    [future] = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=timeout
    ).values()
    try:
        return _missing(future.result().authorized_operations, [AclOperation.READ])
    finally:
        del future  # holds its error, whose traceback holds this frame: a cycle that would keep the client


def missing_on_topic(admin: AdminClient, topic: str) -> Sequence[str]:
    """Returns the names of the operations on ``topic`` that are not granted, as far as the broker tells."""
    [future] = admin.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, request_timeout=TIMEOUT
    ).values()
    try:
        return _missing(future.result().authorized_operations, [AclOperation.READ])
    finally:
        del future  # as above


def ensure_group(admin: AdminClient, options: NeliOptions, settings: Mapping[str, Any]) -> None:
    """Checks that the broker does not refuse the group; ignores other errors."""
    try:
        missing_on_group(admin, options.group, _START_SECONDS)
    except KafkaException as error:
        if is_refusal(error.args[0]):
            what = f"cannot join the election; {required(options)}"
            raise driver_error(what, error.args[0], settings) from error


def _missing(granted: Sequence[AclOperation] | None, required: Sequence[AclOperation]) -> Sequence[str]:
    return [] if granted is None else [each.name for each in required if each not in granted]


_TIMEOUT = 10.0
CREATE_TOPIC: Final = "grant CREATE on it, or create it with one partition and grant READ and DESCRIBE"


def ensure_topic(settings: Mapping[str, Any], topic: str) -> KafkaAdmin:
    """Creates ``topic`` if it is missing, with one partition, replicated as the broker does by default."""
    admin = KafkaAdmin(settings, driver_error)
    if topic not in admin.wait_for_cluster(_TIMEOUT).topics:
        admin.create_topics(
            [topic],
            1,
            _TIMEOUT,
            what="cannot create leader topic",
            cure=f", which is missing or hidden ({CREATE_TOPIC})",
        )
    return admin


def try_topic(admin: AdminClient, topic: str) -> None:
    """Has the broker look whether it would create ``topic`` for this user; creates nothing."""
    wanted = NewTopic(topic, 1, -1)
    [future] = admin.create_topics([wanted], validate_only=True, request_timeout=TIMEOUT).values()
    try:
        future.result()
    finally:
        del future  # as above
