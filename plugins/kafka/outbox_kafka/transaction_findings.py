"""What `outbox check` says of settings and broker with regard to exactly-once delivery.

What makes it impossible or unsafe is an error, and nothing starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from outbox_sdk import Finding, Level

from outbox_kafka.marker import LENGTH_MAX
from outbox_kafka.settings import timeouts_trouble, transaction_timeout_ms
from outbox_kafka.topics import MOCK

LOG_TOPIC: Final = "__transaction_state"
"""The brokers' own topic, which they create with the first transaction."""

_SUBJECT: Final = "Kafka transactions"
_MARKERS: Final = "Kafka markers"
_DAY: Final = 24 * 60
"""Minutes."""


class TransactionLog(NamedTuple):
    """The brokers' log of transactions, as far as it can be seen.

    Attributes:
        replicas: How many copies it has; ``None`` if that cannot be seen, or not before it is created.
        least: How many of them must be in sync; ``None`` likewise.
        missing: Whether it is certain that there is none yet.
    """

    replicas: int | None = None
    least: int | None = None
    missing: bool = False


def settings_finding(producer: Mapping[str, Any]) -> Finding:
    """Judges the settings of a producer, complete, for transactions; needs no broker."""
    trouble = timeouts_trouble(producer)
    if trouble is not None:
        return Finding(Level.ERROR, _SUBJECT, *trouble)
    return Finding(Level.OK, _SUBJECT, f"one may take {transaction_timeout_ms(producer)} ms")


def mock_finding() -> Finding:
    """Judges librdkafka's mock of a broker."""
    cure = "remove test.mock.num.brokers: exactly-once delivery needs a real Kafka"
    return Finding(Level.ERROR, _SUBJECT, MOCK, cure)


def transaction_findings(
    broker: Mapping[str, str], brokers: int, producer: Mapping[str, Any], log: TransactionLog
) -> Iterator[Finding]:
    """Judges a broker's settings for transactions and markers; what it does not tell is not judged.

    Args:
        broker: The broker's settings.
        brokers: How many brokers there are now; one that is down does not count.
        producer: The settings of a producer, complete.
        log: The brokers' log of transactions.
    """
    factor = broker.get("transaction.state.log.replication.factor")
    least = broker.get("transaction.state.log.min.isr")
    if log.replicas is not None and log.least is not None:
        yield _log(log.replicas, log.least, brokers)
    elif factor is not None and least is not None:
        yield _log_to_be(int(factor), int(least), brokers, certain=log.missing)
    longest = broker.get("transaction.max.timeout.ms")
    if longest is not None and transaction_timeout_ms(producer) > int(longest):
        yield Finding(
            Level.ERROR,
            _SUBJECT,
            f"exactly-once delivery wants transactions of up to {transaction_timeout_ms(producer)} ms, "
            f"the broker permits {longest} ms",
            "lower delivery.timeout.ms and transaction.timeout.ms, or raise transaction.max.timeout.ms there",
        )
    minutes = broker.get("offsets.retention.minutes")
    if minutes is not None:
        yield _retention(int(minutes))
    length = broker.get("offset.metadata.max.bytes")
    if length is not None and int(length) < LENGTH_MAX:
        yield Finding(
            Level.ERROR,
            _MARKERS,
            f"the broker stores {length} bytes with an offset; exactly-once delivery may need {LENGTH_MAX}",
            f"set offset.metadata.max.bytes={LENGTH_MAX} on the brokers, or leave it out",
        )


def _log_to_be(factor: int, least: int, brokers: int, *, certain: bool) -> Finding:
    """Judges the log by the settings that it is, or was, created with."""
    if factor <= brokers:
        return _log(factor, least, brokers)
    message = f"their log is created with {factor} replicas: not with {brokers} brokers"
    if certain:
        cure = "start more brokers, or lower transaction.state.log.replication.factor on them"
        return Finding(Level.ERROR, _SUBJECT, f"{message}, and exactly-once delivery cannot begin", cure)
    # It may have been created while there were more brokers, and then all is well.
    message += "; whether exactly-once delivery has it already cannot be seen"
    cure = f"grant DESCRIBE and DESCRIBE_CONFIGS on topic {LOG_TOPIC} to see it here"
    return Finding(Level.WARNING, _SUBJECT, message, cure)


def _log(replicas: int, least: int, brokers: int) -> Finding:
    message = f"their log has {replicas} replicas, of which {least} must be in sync"
    if least > replicas:
        cure = (
            "raise its replicas (transaction.state.log.replication.factor), or lower its min.insync.replicas"
        )
        cure += " (transaction.state.log.min.isr)"
        return Finding(Level.ERROR, _SUBJECT, f"{message}: exactly-once delivery cannot begin", cure)
    if brokers > 1 and replicas < 2:  # noqa: PLR2004 - one copy more than one
        cure = "set transaction.state.log.replication.factor=3 and transaction.state.log.min.isr=2 there"
        message = f"{message}: while its broker is down exactly-once delivery stands still"
        return Finding(Level.WARNING, _SUBJECT, message, cure)
    return Finding(Level.OK, _SUBJECT, message)


def _retention(minutes: int) -> Finding:
    if minutes >= _DAY:
        return Finding(Level.OK, _MARKERS, f"kept for {minutes // _DAY} days after a lane's last batch")
    message = (
        f"the brokers forget a lane's marker {minutes} minutes after its last batch: a harvester that "
        "crashes and is down for longer cannot tell what it published, and exactly-once delivery breaks"
    )
    cure = "set offsets.retention.minutes to several days (10080 is the brokers' default)"
    return Finding(Level.ERROR, _MARKERS, message, cure)
