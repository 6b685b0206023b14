"""What `outbox check` says of a broker with regard to exactly-once delivery.

Whether that is wanted is not known here, so nothing of it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from outbox_sdk import Finding, Level

from outbox_kafka.marker import LENGTH_MAX
from outbox_kafka.settings import transaction_timeout_ms

_SUBJECT: Final = "Kafka transactions"
_DAY: Final = 24 * 60
"""Minutes."""


def transaction_findings(
    broker: Mapping[str, str], brokers: int, producer: Mapping[str, Any]
) -> Iterator[Finding]:
    """Judges a broker's settings for transactions and markers; what it does not tell is not judged.

    Args:
        broker: The broker's settings.
        brokers: How many brokers there are.
        producer: The settings of a producer, complete.
    """
    factor = broker.get("transaction.state.log.replication.factor")
    least = broker.get("transaction.state.log.min.isr")
    if factor is not None and least is not None:
        yield _log(int(factor), int(least), brokers)
    longest = broker.get("transaction.max.timeout.ms")
    if longest is not None and transaction_timeout_ms(producer) > int(longest):
        yield Finding(
            Level.WARNING,
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
            Level.WARNING,
            "Kafka markers",
            f"the broker stores {length} bytes with an offset; exactly-once delivery may need {LENGTH_MAX}",
            f"set offset.metadata.max.bytes={LENGTH_MAX} on the brokers, or leave it out",
        )


def _log(factor: int, least: int, brokers: int) -> Finding:
    message = f"their log has {factor} replicas, of which {least} must be in sync"
    if least > factor or factor > brokers:
        cure = "give transaction.state.log.replication.factor and .min.isr values that the brokers can meet"
        message = f"{message}; with {brokers} brokers exactly-once delivery cannot begin"
        return Finding(Level.WARNING, _SUBJECT, message, cure)
    if brokers > 1 and factor < 2:  # noqa: PLR2004 - one copy more than one
        cure = "set transaction.state.log.replication.factor=3 and transaction.state.log.min.isr=2 there"
        message = f"{message}: while its broker is down exactly-once delivery stands still"
        return Finding(Level.WARNING, _SUBJECT, message, cure)
    return Finding(Level.OK, _SUBJECT, message)


def _retention(minutes: int) -> Finding:
    subject = "Kafka markers"
    if minutes >= _DAY:
        return Finding(Level.OK, subject, f"kept for {minutes // _DAY} days after a lane's last batch")
    message = (
        f"the brokers forget a lane's marker {minutes} minutes after its last batch: a harvester that "
        "crashes and is down for longer cannot tell what it published, and exactly-once delivery breaks"
    )
    cure = "set offsets.retention.minutes to several days (10080 is the brokers' default)"
    return Finding(Level.WARNING, subject, message, cure)
