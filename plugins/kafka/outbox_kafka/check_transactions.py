"""Checks settings and broker for exactly-once delivery, for ``outbox check``.

Whatever makes exactly-once delivery impossible or unsafe is an error, and prevents the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from outbox_api import Finding, Level, OutboxError

from outbox_kafka.client.clients import ClientLog, Producer
from outbox_kafka.client.errors import describe
from outbox_kafka.client.settings import bootstrap_servers
from outbox_kafka.errors import is_unsupported, reason
from outbox_kafka.settings import timeout_conflict, transaction_timeout_ms
from outbox_kafka.topics import MOCK

LOG_TOPIC: Final = "__transaction_state"
"""The brokers' internal topic; they create it with the first transaction."""

_SUBJECT: Final = "Kafka transactions"


class TransactionLog(NamedTuple):
    """The brokers' transaction log, as far as it can be seen; ``missing`` if there is certainly none."""

    replicas: int | None = None
    min_in_sync: int | None = None
    missing: bool = False


def settings_finding(producer: Mapping[str, Any]) -> Finding:
    """Checks the complete settings of a producer for transactions; needs no broker."""
    conflict = timeout_conflict(producer)
    if conflict is not None:
        return Finding(Level.ERROR, _SUBJECT, *conflict)
    return Finding(Level.OK, _SUBJECT, f"one may take {transaction_timeout_ms(producer)} ms")


def mock_finding() -> Finding:
    """Returns the finding for librdkafka's mock of a broker."""
    cure = "remove test.mock.num.brokers: exactly-once delivery needs a real Kafka"
    return Finding(Level.ERROR, _SUBJECT, MOCK, cure)


def transaction_findings(
    broker: Mapping[str, str], brokers: int, producer: Mapping[str, Any], log: TransactionLog
) -> Iterator[Finding]:
    """Checks a broker's settings for transactions; skips settings that it does not tell."""
    factor = broker.get("transaction.state.log.replication.factor")
    min_in_sync = broker.get("transaction.state.log.min.isr")
    if log.replicas is not None and log.min_in_sync is not None:
        yield _log(log.replicas, log.min_in_sync, brokers)
    elif factor is not None and min_in_sync is not None:
        yield _future_log(int(factor), int(min_in_sync), brokers, certain=log.missing)
    session = broker.get("broker.session.timeout.ms")
    if brokers > 1 and session is not None:
        message = (
            f"a broker that is killed and started again within {session} ms may tear a transaction; the lane "
            "publishes again what was aborted. It is rarer if brokers are started later (docs/reliability.md)"
        )
        yield Finding(Level.OK, "Kafka broker restarts", message)
    longest = broker.get("transaction.max.timeout.ms")
    if longest is not None and transaction_timeout_ms(producer) > int(longest):
        yield Finding(
            Level.ERROR,
            _SUBJECT,
            f"exactly-once delivery needs transactions of up to {transaction_timeout_ms(producer)} ms, "
            f"the broker permits {longest} ms",
            "lower delivery.timeout.ms and transaction.timeout.ms, or raise transaction.max.timeout.ms there",
        )


def _future_log(factor: int, min_in_sync: int, brokers: int, *, certain: bool) -> Finding:
    """Checks the settings with which the brokers create the log, or have created it."""
    if factor <= brokers:
        return _log(factor, min_in_sync, brokers)
    message = f"the transaction log is created with {factor} replicas, which {brokers} brokers cannot hold"
    if certain:
        cure = "start more brokers, or lower transaction.state.log.replication.factor on them"
        return Finding(Level.ERROR, _SUBJECT, f"{message}, so exactly-once delivery cannot start", cure)
    # The log may have been created while there were more brokers; then nothing is wrong.
    message += "; exactly-once delivery cannot start unless the log exists already, which cannot be seen"
    cure = f"grant DESCRIBE and DESCRIBE_CONFIGS on topic {LOG_TOPIC} to see it here"
    return Finding(Level.WARNING, _SUBJECT, message, cure)


def _log(replicas: int, min_in_sync: int, brokers: int) -> Finding:
    message = f"the transaction log has {replicas} replicas, of which {min_in_sync} must be in sync"
    if min_in_sync > replicas:
        cure = (
            "raise its replicas (transaction.state.log.replication.factor), or lower its min.insync.replicas"
        )
        cure += " (transaction.state.log.min.isr)"
        return Finding(Level.ERROR, _SUBJECT, f"{message}: exactly-once delivery cannot start", cure)
    if brokers > 1 and replicas < 2:  # noqa: PLR2004 - one copy more than one
        cure = "set transaction.state.log.replication.factor=3 and transaction.state.log.min.isr=2 there"
        message = f"{message}: while its broker is down, exactly-once delivery stops"
        return Finding(Level.WARNING, _SUBJECT, message, cure)
    return Finding(Level.OK, _SUBJECT, message)


_IDS: Final = "Kafka transactional ids"

_PREFIX: Final = "outbox."

_NAME: Final = "outbox.check"
"""Of no lane, and never registered."""

_TOO_LONG_MS: Final = 2**31 - 1
"""Brokers refuse transactions of this length, after they have looked at the permission and before they
register anything.
"""


def transactional_id_finding(settings: Mapping[str, Any], timeout: float) -> Finding:
    """Asks for a transaction that no broker begins; the refusal shows what is permitted."""
    own = {"transactional.id": _NAME, "client.id": _NAME, "transaction.timeout.ms": str(_TOO_LONG_MS)}
    try:
        producer = Producer({**settings, **own, "logger": ClientLog(), "error_cb": lambda _error: None})
        producer.init_transactions(timeout)
    except KafkaException as caught:
        return judged(caught.args[0], settings)
    except OutboxError as error:  # of a file that has just changed
        return _unknown(str(error))
    return _PERMITTED


def judged(error: KafkaError, settings: Mapping[str, Any]) -> Finding:
    """Returns what the broker's answer says."""
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return _PERMITTED
    if is_unsupported(error):
        message = f"these brokers support none: {describe(error, settings)}"
        return Finding(Level.ERROR, _SUBJECT, message, "choose delivery: at-least-once, or other brokers")
    if error.code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return _unknown(reason(error, settings))
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
    return Finding(Level.WARNING, _IDS, message, cure)


def _unknown(why: str) -> Finding:
    cure = "check again, best while the brokers are at rest"
    return Finding(Level.WARNING, _IDS, f"cannot be looked at: {why}", cure)


_PERMITTED: Final = Finding(Level.OK, _IDS, f"those that begin with '{_PREFIX}' are permitted")
