"""``outbox export``: describes for others what the configuration publishes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPException
from importlib.metadata import version
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import typer
from outbox_api.base.errors import ConfigError, DriverError
from outbox_api.support.file_text import present_text

from outbox_core.cli.command import Command, Group
from outbox_core.cli.invocation import FileOption
from outbox_core.cli.outboxes import OutboxOption, watched_outboxes
from outbox_core.cli.terminal import print_json
from outbox_core.settings import HarvestSettings

_NOT_FOUND = 404
_SECONDS = 5.0
_FORMATS = {
    "AVRO": "application/vnd.apache.avro+json;version=1.9.0",
    "JSON": "application/schema+json;version=draft-07",
    "PROTOBUF": "application/vnd.google.protobuf;version=3",
}
"""The registry's type of a schema → what AsyncAPI calls it."""
_CONTENT = {
    "AVRO": "application/vnd.confluent.avro",
    "JSON": "application/json",
    "PROTOBUF": "application/x-protobuf",
}


def asyncapi(
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            show_default=False,
            help="A topic beside those of the configuration.",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", show_default=False, help="The schema registry that has TOPIC-value."),
    ] = None,
) -> None:
    """Write an AsyncAPI 3.0 document of the topics that the configuration names, as JSON.

    Topics are those of 'topics' without wildcards, and those of --topic. With --registry each has the newest
    schema of its subject TOPIC-value; without one, any value. Queries neither the database nor the broker.
    """
    chosen = watched_outboxes(context, file, outbox)
    print_json(document(chosen.outboxes, topics or (), registry))


def document(
    outboxes: Sequence[HarvestSettings], more: Sequence[str], registry: str | None
) -> dict[str, Any]:
    """Returns the document.

    Raises:
        ConfigError: There is no topic.
        DriverError: The registry does not answer, or refuses.
    """
    named = [each for outbox in outboxes for each in outbox.topics if not set("*?[") & set(each)]
    topics = sorted({*named, *more})
    if not topics:
        raise ConfigError("topics has no name, only patterns: name topics there, or with --topic")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"Records of {', '.join(each.title for each in outboxes)}",
            "version": version("outbox-api"),
        },
        "defaultContentType": "application/octet-stream",
        "servers": _servers(outboxes),
        "channels": {
            each: {"address": each, "messages": {"record": _message(each, registry)}} for each in topics
        },
        "operations": {
            f"send {each}": {"action": "send", "channel": {"$ref": f"#/channels/{each}"}} for each in topics
        },
    }


def _servers(outboxes: Sequence[HarvestSettings]) -> dict[str, Any]:
    """Returns the brokers, as far as the publishers' options tell; several outboxes may have the same."""
    found = {}
    for outbox in outboxes:
        options = getattr(outbox.publisher.options, "kafka", {})
        protocol = "kafka-secure" if "SSL" in str(options.get("security.protocol", "")).upper() else "kafka"
        for host in present_text(options.get("bootstrap.servers") or "").split(","):
            if host.strip():
                found[host.strip()] = {"host": host.strip(), "protocol": protocol}
    return {f"broker-{number}": found[host] for number, host in enumerate(sorted(found))}


def _message(topic: str, registry: str | None) -> dict[str, Any]:
    message: dict[str, Any] = {
        "name": topic,
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"}},
    }
    found = _schema(topic, registry) if registry else None
    if found is None:
        return message
    kind = found.get("schemaType", "AVRO")
    text = found["schema"]
    schema = text if kind == "PROTOBUF" else json.loads(text)
    payload = {"schemaFormat": _FORMATS[kind], "schema": schema}
    return {**message, "contentType": _CONTENT[kind], "payload": payload}


def _schema(topic: str, registry: str) -> dict[str, Any] | None:
    """Returns the newest schema of a topic's values; ``None`` if the registry has none."""
    subject = f"{registry.rstrip('/')}/subjects/{quote(f'{topic}-value', safe='')}/versions/latest"
    if not subject.startswith(("http://", "https://")):
        raise ConfigError("--registry is the address of a schema registry: http://… or https://…")
    if "@" in urlsplit(registry).netloc:
        raise ConfigError("--registry takes no user and no password")
    try:
        with urlopen(subject, timeout=_SECONDS) as answer:  # noqa: S310 - http, as was just made sure
            found: dict[str, Any] = json.load(answer)
            return found
    except HTTPError as error:
        if error.code == _NOT_FOUND:
            return None
        raise DriverError(f"the schema registry refuses {topic}: {error}", retryable=False) from error
    except (HTTPException, OSError, ValueError) as error:
        raise DriverError(f"the schema registry does not answer: {error}", retryable=True) from error


COMMAND = Group(
    "export",
    """Describe what is published, for other tools.""",
    (
        Command(
            asyncapi,
            (
                "outbox export asyncapi -f outbox.yaml",
                "outbox export asyncapi --topic orders --registry http://registry:8081",
            ),
        ),
    ),
)
