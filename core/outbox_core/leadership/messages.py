"""Reports and orders as JSON: what a peer sends is data, and never code."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from outbox_core.leadership.protocol import Orders, Report

Message = TypeVar("Message", Report, Orders)

_ADAPTERS: dict[type[Report | Orders], TypeAdapter[Any]] = {
    Report: TypeAdapter(Report),
    Orders: TypeAdapter(Orders),
}


def encode(message: Report | Orders) -> bytes:
    """Writes a message; what is no Unicode in a text that a lane logged becomes a question mark."""
    data = _ADAPTERS[type(message)].dump_python(message, mode="json")
    # By the standard library, as a lease may be infinite.
    return json.dumps(data, ensure_ascii=False).encode(errors="replace")


def decode(kind: type[Message], text: bytes) -> Message:
    """Reads a message.

    Raises:
        ConnectionError: It is none of this kind: the other end is of another version.
    """
    try:
        message: Message = _ADAPTERS[kind].validate_json(text)
    except ValidationError:
        # Without the text, which may hold what a lane logged.
        raise ConnectionError(f"a message is malformed: it is no {kind.__name__}") from None
    return message
