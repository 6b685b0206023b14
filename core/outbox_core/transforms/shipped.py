"""The transforms that come with core: topic, headers, filter, redact, identity and cloudevents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from outbox_api import ConfigError, Driver, Outgoing
from outbox_api.base.bounds import matches
from outbox_api.base.record import ID_HEADER
from outbox_api.seams.hooks import GIVEN, Plugin

from outbox_core.transforms.content import Template, field_text, header_text, json_value, with_headers


@dataclass(frozen=True)
class TopicOptions:
    """The transform ``topic``."""

    to: str  # the topic to publish to, a template

    def __post_init__(self) -> None:
        Template(self.to)


class Topic:
    """Publishes to another topic."""

    def __init__(self, options: TopicOptions) -> None:
        self._to = Template(options.to)

    def apply(self, record: Outgoing) -> Sequence[Outgoing]:
        """Names the topic."""
        return [record._replace(topic=self._to.filled(record))]


@dataclass(frozen=True)
class HeadersOptions:
    """The transform ``headers``."""

    set: Mapping[str, str] = field(default_factory=dict)
    """Name → value, a template; it replaces all headers of its name."""
    remove: tuple[str, ...] = ()  # the names of headers that are left out

    def __post_init__(self) -> None:
        if not self.set and not self.remove:
            raise ConfigError("neither sets nor removes a header; name some as 'set' or 'remove'")
        for text in self.set.values():
            Template(text)


class Headers:
    """Sets and removes headers."""

    def __init__(self, options: HeadersOptions) -> None:
        self._set = {name: Template(text) for name, text in options.set.items()}
        self._remove = options.remove

    def apply(self, record: Outgoing) -> Sequence[Outgoing]:
        """Changes the headers."""
        made = {name: template.filled(record) for name, template in self._set.items()}
        return [with_headers(record, made, self._remove)]


@dataclass(frozen=True)
class Match:
    """A condition on records; all that it names must be so. In patterns ``*`` and ``?`` are wildcards."""

    topic: str = "*"  # a pattern of the topic
    headers: Mapping[str, str] = field(default_factory=dict)  # name → a pattern of the header's text
    fields: Mapping[str, str] = field(default_factory=dict)
    """Path → a pattern of the field's text in the value, which must be JSON."""

    def __post_init__(self) -> None:
        if self.topic == "*" and not self.headers and not self.fields:
            raise ConfigError("names no condition; there are 'topic', 'headers' and 'fields'")

    def meets(self, record: Outgoing) -> bool:
        """Returns whether a record meets the condition."""
        if not matches(record.topic, self.topic):
            return False
        if not all(_fits(header_text(record, name), each) for name, each in self.headers.items()):
            return False
        value = json_value(record) if self.fields else None
        return all(_fits(field_text(value, path), pattern) for path, pattern in self.fields.items())


def _fits(text: str | None, pattern: str) -> bool:
    return text is not None and matches(text, pattern)


@dataclass(frozen=True)
class FilterOptions:
    """The transform ``filter``."""

    keep: Match | None = None  # only records that meet this are published
    drop: Match | None = None  # of these, records that meet this are not published

    def __post_init__(self) -> None:
        if self.keep is None and self.drop is None:
            raise ConfigError("neither keeps nor drops records; name a condition as 'keep' or 'drop'")


class Filter:
    """Leaves records out."""

    def __init__(self, options: FilterOptions) -> None:
        self._options = options

    def apply(self, record: Outgoing) -> Sequence[Outgoing]:
        """Returns the record or nothing."""
        keep, drop = self._options.keep, self._options.drop
        return [record] if (keep is None or keep.meets(record)) and not (drop and drop.meets(record)) else []


@dataclass(frozen=True)
class RedactOptions:
    """The transform ``redact``."""

    fields: tuple[str, ...]  # paths in the value, which must be JSON; * is every member or item
    replacement: str | None = None
    """What the fields contain instead; ``None`` removes them, and makes items of lists null."""

    def __post_init__(self) -> None:
        if not self.fields or not all(part for path in self.fields for part in path.split(".")):
            raise ConfigError("'fields' are paths such as 'customer.email' or 'cards.*.number'")


class Redact:
    """Removes or replaces fields; writes the value anew, so that nothing else of it is left either."""

    def __init__(self, options: RedactOptions) -> None:
        self._paths = [path.split(".") for path in options.fields]
        self._replacement = options.replacement

    def apply(self, record: Outgoing) -> Sequence[Outgoing]:
        """Redacts the value; a tombstone has none."""
        if record.value is None:
            return [record]
        value = json_value(record, exact=True)
        for path in self._paths:
            self._redact(value, path)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return [record._replace(value=text.encode() if isinstance(record.value, bytes) else text)]

    def _redact(self, value: Any, path: Sequence[str]) -> None:
        name, *rest = path
        if isinstance(value, dict):
            names: list[Any] = list(value) if name == "*" else [name] if name in value else []
        elif isinstance(value, list):
            names = list(range(len(value))) if name == "*" else _index(value, name)
        else:
            return
        for each in names:
            if rest:
                self._redact(value[each], rest)
            elif self._replacement is None and isinstance(value, dict):
                del value[each]
            else:
                value[each] = self._replacement


def _index(value: list[Any], name: str) -> list[Any]:
    return [int(name)] if name.isdecimal() and int(name) < len(value) else []


@dataclass(frozen=True)
class IdentityOptions:
    """The transform ``identity``."""

    header: str = ID_HEADER  # the header's name
    identity: str = field(default="", metadata=GIVEN)  # the outbox's identity


class Identity:
    """Sets a header that is different for all records of all outboxes, and the same when one is repeated."""

    def __init__(self, options: IdentityOptions) -> None:
        self._options = options

    def apply(self, record: Outgoing) -> Sequence[Outgoing]:
        """Sets the header."""
        return [with_headers(record, {self._options.header: _identity(self._options.identity, record)})]


def _identity(outbox: str, record: Outgoing) -> str:
    return f"{outbox}:{record.id}.{record.part}" if record.part else f"{outbox}:{record.id}"


@dataclass(frozen=True)
class CloudEventsOptions:
    """The transform ``cloudevents``, in binary mode: the value stays as it is.

    All but the identity are templates.
    """

    source: str  # where events come from, a URI
    type: str = "{topic}"  # what they tell of
    id: str | None = None  # unique for the source; by default what the transform identity would set
    time: str | None = None
    """When it happened, by RFC 3339; by default the record's own timestamp, if it has one."""
    content_type: str | None = None  # what the value is; by default the header stays as it is
    identity: str = field(default="", metadata=GIVEN)  # the outbox's identity

    def __post_init__(self) -> None:
        for text in self.templates().values():
            Template(text)

    def templates(self) -> dict[str, str]:
        """Returns the templates by the names of their headers."""
        named = {
            "ce_specversion": "1.0",
            "ce_source": self.source,
            "ce_type": self.type,
            "ce_id": self.id,
            "ce_time": self.time,
            "content-type": self.content_type,
        }
        return {name: text for name, text in named.items() if text is not None}


class CloudEvents:
    """Sets the headers that make an event of a record."""

    def __init__(self, options: CloudEventsOptions) -> None:
        self._options = options
        self._templates = {name: Template(text) for name, text in options.templates().items()}

    def apply(self, record: Outgoing) -> Sequence[Outgoing]:
        """Sets the headers."""
        made = {name: template.filled(record) for name, template in self._templates.items()}
        made.setdefault("ce_id", _identity(self._options.identity, record))
        if record.timestamp_ms is not None:
            own = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
            made.setdefault("ce_time", own.isoformat(timespec="milliseconds"))
        return [with_headers(record, made)]


TOPIC = Plugin("outbox_transform", Driver(TopicOptions, Topic))
HEADERS = Plugin("outbox_transform", Driver(HeadersOptions, Headers))
FILTER = Plugin("outbox_transform", Driver(FilterOptions, Filter))
CLOUDEVENTS = Plugin("outbox_transform", Driver(CloudEventsOptions, CloudEvents))
REDACT = Plugin("outbox_transform", Driver(RedactOptions, Redact))
IDENTITY = Plugin("outbox_transform", Driver(IdentityOptions, Identity))
