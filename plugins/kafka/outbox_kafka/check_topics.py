"""Checks whether this client may write to the topics of records, and read them, for ``outbox check``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from outbox_api import Finding, Level
from outbox_api.base.bounds import OWN_PATTERNS, matches

from outbox_kafka.client.settings import bootstrap_servers
from outbox_kafka.topics import Access

_SUBJECT: Final = "Kafka topics"

_WILDCARDS: Final = frozenset("*?[")

_SHOWN: Final = 5
"""Topics that a message names; it counts the others."""


def is_name(pattern: str) -> bool:
    """Returns whether a pattern matches the topic of this name only."""
    return not _WILDCARDS & set(pattern)


def topics_to_check(patterns: Sequence[str], visible: Iterable[str], own: str) -> list[str]:
    """Returns the topics that records may name, sorted: named ones, and visible ones that match."""
    others = [
        topic
        for topic in visible
        if not topic.startswith("__") and not any(matches(topic, each) for each in (own, *OWN_PATTERNS))
    ]
    matching = {topic for topic in others if any(matches(topic, pattern) for pattern in patterns)}
    return sorted(matching | set(filter(is_name, patterns)))


def topic_findings(
    patterns: Sequence[str], access: Mapping[str, Access], settings: Mapping[str, Any], *, restricted: bool
) -> Iterator[Finding]:
    """Judges what this client may do with topics; one that is named, not only matched, must be writable."""
    user = _user(settings)
    topics = {state: [topic for topic in access if access[topic] is state] for state in Access}
    for state, operation, verb, consequence in (
        (Access.REFUSED, "Write", "write to", "a record for it parks its key"),
        (
            Access.UNREADABLE,
            "Read",
            "read",
            "a lane whose transaction has an unknown outcome cannot begin anew",
        ),
    ):
        named = [topic for topic in topics[state] if topic in patterns]
        matched = [topic for topic in topics[state] if topic not in patterns]
        for level, refused in ((Level.ERROR, named), (Level.WARNING, matched)):
            if refused:
                message = f"{user} may not {verb} {_listed(refused)}: {consequence}"
                yield Finding(level, _SUBJECT, message, _grant(operation, refused, settings))
    if hidden := topics[Access.HIDDEN]:
        message = f"whether {user} may write to {_listed(hidden)} cannot be seen: the broker does not tell"
        yield Finding(Level.WARNING, _SUBJECT, message, _grant("Describe", hidden, settings))
    if writable := topics[Access.WRITABLE]:
        yield Finding(Level.OK, _SUBJECT, f"{user} may write to {_listed(writable)}")
    if missing := topics[Access.MISSING]:
        yield Finding(Level.OK, _SUBJECT, f"{_listed(missing)} not created yet")
    if not access and restricted:
        message = f"{user} sees no topic, so it may write to none of those that exist"
        yield Finding(Level.WARNING, _SUBJECT, message, _grant("Write", ["TOPIC"], settings))


def dead_letter_findings(
    access: Mapping[str, Access], settings: Mapping[str, Any], *, created: bool
) -> Iterator[Finding]:
    """Judges the topics for dead letters; ``created``: whether brokers create topics on first use."""
    subject, only = "Kafka dead letters", "dead letters are in their table only"
    topics = {state: [topic for topic in access if access[topic] is state] for state in Access}
    if refused := topics[Access.REFUSED]:
        message = f"{_user(settings)} may not write to {_listed(refused)}: {only}"
        yield Finding(Level.WARNING, subject, message, _grant("Write", refused, settings))
    if (missing := topics[Access.MISSING]) and not created:
        message = f"{_listed(missing)} not created yet: {only}"
        yield Finding(Level.WARNING, subject, message, "run 'outbox init', or create these topics")
    if not (refused or topics[Access.HIDDEN]) and (created or not missing):
        yield Finding(Level.OK, subject, f"copies go to {_listed(list(access))}")


def size_finding(ours: int, topics: Mapping[str, int], default: int) -> Finding:
    """Compares the largest message that the client sends with what topics take.

    A topic's own limit counts, and the brokers' for topics that do not exist yet. Who raises one topic and
    the client leaves the others as they are: those refuse a large record as the client would have before.
    """
    subject, message = "Kafka message size", f"the client sends up to {ours:,} bytes"
    limits = topics or {"a new topic": default}
    less = [name for name, limit in limits.items() if limit < ours]
    if not less:
        return Finding(Level.OK, subject, f"{message}, and topics take that")
    largest = max(limits[name] for name in less)
    message += f"; {_listed(less) if topics else 'a new topic'} takes less, up to {largest:,}"
    if len(less) < len(limits):
        return Finding(Level.OK, subject, f"{message}, and refuses larger records one by one")
    cure = (
        "larger records are refused one by one: raise max.message.bytes of the topics that get any, or lower "
        "message.max.bytes here"
    )
    return Finding(Level.WARNING, subject, message, cure)


def _user(settings: Mapping[str, Any]) -> str:
    name = settings.get("sasl.username")
    return f"user '{name}'" if name else "this user"


def _listed(topics: Sequence[str]) -> str:
    shown = ", ".join(f"'{topic}'" for topic in topics[:_SHOWN])
    return shown if len(topics) <= _SHOWN else f"{shown} and {len(topics) - _SHOWN} more topics"


def _grant(operation: str, topics: Sequence[str], settings: Mapping[str, Any]) -> str:
    """Returns the command that grants an operation on the topics that the message names."""
    principal = settings.get("sasl.username") or "NAME"
    named = " ".join(f"--topic {topic}" for topic in topics[:_SHOWN])
    return (
        f"grant {operation.upper()}: kafka-acls --bootstrap-server {bootstrap_servers(settings)} --add "
        f"--allow-principal User:{principal} --operation {operation} {named}"
    )
