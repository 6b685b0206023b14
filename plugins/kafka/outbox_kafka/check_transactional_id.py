"""Checks whether this client may use transactional ids, for ``outbox check``; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from outbox_kafka_client.client_log import ClientLog
from outbox_kafka_client.clients import Producer
from outbox_kafka_client.settings import bootstrap_servers
from outbox_sdk import Finding, Level

from outbox_kafka.errors import reason

_SUBJECT: Final = "Kafka transactional ids"

_PREFIX: Final = "outbox."

_NAME: Final = "outbox.check"
"""Of no lane, and never registered."""

_TOO_LONG_MS: Final = 2**31 - 1
"""Brokers refuse transactions of this length, after they have looked at the permission and before they
register anything.
"""


def transactional_id_finding(settings: Mapping[str, Any], timeout: float) -> Finding:
    """Asks for a transaction that no broker begins; the refusal shows what is permitted.

    Args:
        settings: The settings of a producer, complete.
        timeout: Seconds to wait for the answer.
    """
    own = {"transactional.id": _NAME, "client.id": _NAME, "transaction.timeout.ms": str(_TOO_LONG_MS)}
    try:
        producer = Producer({**settings, **own, "logger": ClientLog(), "error_cb": lambda _error: None})
        producer.init_transactions(timeout)
    except KafkaException as caught:
        return judged(caught.args[0], settings)
    return _PERMITTED


def judged(error: KafkaError, settings: Mapping[str, Any]) -> Finding:
    """Returns what the broker's answer says.

    Args:
        error: The answer.
        settings: The producer's settings, whose secrets stay out of the finding.
    """
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return _PERMITTED
    if error.code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        message = f"cannot be looked at: {reason(error, settings)}"
        return Finding(Level.WARNING, _SUBJECT, message, "check again, best while the brokers are at rest")
    user = settings.get("sasl.username")
    who = f"user '{user}'" if user else "this user"
    message = (
        f"{who} may not use all that begin with '{_PREFIX}': lanes start if theirs are granted one by one"
    )
    cure = (
        f"grant WRITE and DESCRIBE: kafka-acls --bootstrap-server {bootstrap_servers(settings)} --add "
        f"--allow-principal User:{user or 'NAME'} --operation Write --operation Describe "
        f"--transactional-id {_PREFIX} --resource-pattern-type prefixed"
    )
    return Finding(Level.WARNING, _SUBJECT, message, cure)


_PERMITTED: Final = Finding(Level.OK, _SUBJECT, f"those that begin with '{_PREFIX}' are permitted")
