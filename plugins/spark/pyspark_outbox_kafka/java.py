"""Settings of Java's client of Kafka, which Spark's options name, for librdkafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from outbox_api import ConfigError

_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""Java's name → librdkafka's, for the same value."""

_NOTHING: Final = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "max.block.ms",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
    }
)
"""What concerns Java's client alone, and changes no message."""

_OWN: Final = {
    "transactional.id": "the sink gives each task its own, by which it fences earlier ones",
    "transaction.two.phase.commit.enable": "the sink ends its transactions itself",
}
_INSTEAD: Final = {
    "interceptor.classes": "librdkafka has no interceptors; change the rows instead",
    "metric.reporters": "Java's reporters cannot be used; leave it out",
    "partitioner.class": (
        "classes of Java cannot be used; leave it out for the same partitions as Java's default, name "
        "'kafka.partitioner' for one of librdkafka's, or fill the column 'partition'"
    ),
    "sasl.client.callback.handler.class": "classes of Java cannot be used; see librdkafka's sasl.* settings",
    "sasl.login.callback.handler.class": "classes of Java cannot be used; see librdkafka's sasl.*",
    "sasl.login.class": "classes of Java cannot be used; see librdkafka's sasl.* settings",
    "security.providers": "classes of Java cannot be used",
    "ssl.engine.factory.class": "classes of Java cannot be used; see librdkafka's ssl.* settings",
    "ssl.truststore.password": "a file of PEM certificates has none; leave it out",
}
_LOGIN: Final = re.compile(r"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL)
_PAIR: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def librdkafka_settings(java: Mapping[str, str]) -> dict[str, Any]:
    """Returns librdkafka's settings for those of Java's client; others stay as they are.

    No message of an error quotes a value.

    Raises:
        ConfigError: A setting has no counterpart, or is the sink's own.
    """
    settings = dict[str, Any]()
    for name, value in java.items():
        if name in _OWN:
            raise ConfigError(f"the option 'kafka.{name}' must not be set: {_OWN[name]}")
        if name in _INSTEAD:
            raise ConfigError(f"the option 'kafka.{name}' does nothing here: {_INSTEAD[name]}")
        if name in _NOTHING or name.endswith("store.type"):
            continue
        if name == "enable.idempotence" and value.strip().lower() != "true":
            raise ConfigError(f"the option 'kafka.{name}' must be true: transactions need it; leave it out")
        if name == "acks" and value.strip().lower() not in ("all", "-1"):
            raise ConfigError(f"the option 'kafka.{name}' must be 'all': transactions need it; leave it out")
        settings |= _one(name, value, java)
    return settings


def _one(name: str, value: str, java: Mapping[str, str]) -> dict[str, Any]:
    if name == "buffer.memory":
        if not value.isdecimal():
            raise ConfigError(f"the option 'kafka.{name}' must be a number of bytes")
        return {"queue.buffering.max.kbytes": str(max(int(value) // 1024, 1))}
    if name == "sasl.jaas.config":
        return _signed_in(value)
    if name == "ssl.endpoint.identification.algorithm":
        return {name: value or "none"}
    if name == "ssl.truststore.location":
        if java.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise ConfigError(
                "the option 'kafka.ssl.truststore.location' names a store that only Java reads; write its "
                "certificates into a file (keytool -exportcert -rfc), and name that as "
                "'kafka.ssl.ca.location'"
            )
        return {"ssl.ca.location": value}
    if name == "ssl.keystore.location":
        return _key_store(value, java.get("ssl.keystore.type", "JKS").upper())
    return {_RENAMED.get(name, name): value}


def _key_store(location: str, kind: str) -> dict[str, str]:
    if kind == "PKCS12":
        return {"ssl.keystore.location": location}
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    raise ConfigError(
        "the option 'kafka.ssl.keystore.location' names a store that only Java reads; convert it (keytool "
        "-importkeystore -deststoretype PKCS12), and set 'kafka.ssl.keystore.type' to PKCS12; or name PEM "
        "files as 'kafka.ssl.certificate.location' and 'kafka.ssl.key.location'"
    )


def _signed_in(jaas: str) -> dict[str, str]:
    login = _LOGIN.fullmatch(jaas)
    found = {name: a or b or c for name, a, b, c in _PAIR.findall(login[2])} if login else {}
    module = login[1].rpartition(".")[2] if login else ""
    if module not in ("PlainLoginModule", "ScramLoginModule") or not found.keys() >= {"username", "password"}:
        raise ConfigError(
            "the option 'kafka.sasl.jaas.config' is none that the sink can read, which is one of Plain or "
            "ScramLoginModule with user name and password; set 'kafka.sasl.username' and "
            "'kafka.sasl.password' instead, or librdkafka's settings of another mechanism"
        )
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", found[name]) for name in ("username", "password")}
