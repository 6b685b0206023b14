"""Classifies librdkafka's errors and describes them without secrets."""

# ruff: noqa: SLF001 - librdkafka spells the codes of its own errors with a leading underscore

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from confluent_kafka import KafkaError

from outbox_kafka.client.settings import redact


def one_of(*codes: int) -> Callable[[object], TypeGuard[KafkaError]]:
    """Returns a function that tells whether something is an error of Kafka with one of these codes."""

    def is_one(error: object) -> TypeGuard[KafkaError]:
        return isinstance(error, KafkaError) and error.code() in codes

    return is_one


is_refusal = one_of(
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.SECURITY_DISABLED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._AUTHENTICATION,
)
"""The broker refused this client as a whole, whatever it sends."""


def is_tls_failure(error: KafkaError) -> bool:
    """Returns whether TLS failed, because one side does not accept the certificate of the other."""
    return error.code() == KafkaError._SSL or "SSL routines" in error.str()


def concerns_all_brokers(error: KafkaError) -> bool:
    """Returns whether an error of the client concerns more than one connection."""
    return error.code() == KafkaError._ALL_BROKERS_DOWN or is_refusal(error)


_OLD_BROKER = re.compile(
    r"( or broker version is|: (probably due to|might be caused by) broker version) < 0\.10 \(see [^)]*\)"
)


def without_guess(text: str) -> str:
    """Returns what librdkafka says without its guess that the broker is of 2015: it may hang."""
    return _OLD_BROKER.sub("", text)


def describe(error: KafkaError, settings: Mapping[str, Any]) -> str:
    """Returns Kafka's own sentence and the error's name, without the secrets in ``settings``."""
    return f"{redact(without_guess(error.str()), settings)} ({error.name()})"
