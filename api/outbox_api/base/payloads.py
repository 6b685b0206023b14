"""Makes the values of records of models: objects of pydantic, msgspec or dataclasses, and what JSON has.

None of these libraries is imported, unless a model is of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

Serializer = Callable[[Any, str], str | bytes]
"""Makes a value of a model, for a topic; raises any error for a model that it cannot serialize."""

_AS_TEXT = (UUID, Decimal)
_AS_ISO = (datetime, date, time)
_AS_THEY_ARE = (bytes, *_AS_TEXT, *_AS_ISO)


def to_json(model: Any, topic: str = "") -> str:  # noqa: ARG001 - a serializer is given the topic
    """Returns a model as JSON text, as its own library writes it.

    Dataclasses, and models within lists and dictionaries, are written likewise: times as ISO 8601, ``UUID``
    and ``Decimal`` as text, an enumeration's member as its value.

    Raises:
        TypeError: JSON has no such type.
        ValueError: A number is not finite, or the model contains itself.
    """
    if isinstance(model, str | bytes):
        raise TypeError("it is a value already: write Record(topic, key, value)")
    if hasattr(model, "model_dump_json"):
        return str(model.model_dump_json())
    return json.dumps(model, default=_part, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def quotes(error: Exception) -> bool:
    """Returns whether an error's text may quote a value of a model."""
    return type(error).__module__.startswith("pydantic")


def reason(error: Exception) -> str:
    """Returns why a model cannot be made into a value, and quotes no value of it."""
    name, text = type(error).__name__, str(error)
    if not quotes(error) or text.startswith("Unable to serialize unknown type"):
        return text or name
    return (
        f"{name}: {', '.join(each['type'] for each in error.errors())}" if hasattr(error, "errors") else name
    )


def to_plain(model: Any) -> Any:
    """Returns a model as dictionaries and lists, with the values of enumerations; the rest stays as it is."""
    if hasattr(model, "model_dump"):
        return to_plain(model.model_dump())
    if isinstance(model, Enum):
        return model.value
    if hasattr(type(model), "__struct_fields__"):
        return _of_struct(model, _AS_THEY_ARE)
    if isinstance(model, dict):
        return {name: to_plain(part) for name, part in model.items()}
    if isinstance(model, list | tuple):
        return [to_plain(part) for part in model]
    return to_plain(_fields(model)) if _is_dataclass(model) else model


def _part(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(type(value), "__struct_fields__"):
        return _of_struct(value)
    if _is_dataclass(value):
        return _fields(value)
    if isinstance(value, _AS_ISO):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _AS_TEXT):
        return str(value)
    raise TypeError(f"JSON has nothing for {type(value).__qualname__}")


def _of_struct(struct: Any, builtin_types: tuple[type, ...] = ()) -> Any:
    import msgspec  # noqa: PLC0415 - the application has imported it already

    return msgspec.to_builtins(struct, builtin_types=builtin_types)


def _is_dataclass(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
