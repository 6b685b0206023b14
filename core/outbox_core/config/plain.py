"""Converts text to the types that most settings have, as pydantic does.

Whatever is not plain, :mod:`outbox_core.config.decode` leaves to pydantic: other types, unusual notations and
all wrong values. So a harvester whose settings are plain starts without importing pydantic, which takes as
long as everything else that reads its configuration.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from outbox_sdk.hooks import Unit

from outbox_core.config.duration import parse_duration

UNDECIDED: Final[Any] = object()
"""Says that pydantic has to decide."""

_INT = re.compile(r"-?\d{1,18}", re.ASCII)
_FLOAT = re.compile(r"-?\d{1,18}(\.\d{1,18})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def is_plain(hint: Any) -> bool:
    """Returns whether :func:`convert` knows the type."""
    return _converter(hint) is not None


def convert(hint: Any, data: Any) -> Any:
    """Returns the value of ``hint``'s type that pydantic would return for ``data``, or ``UNDECIDED``.

    Args:
        hint: The type of a field.
        data: Text, or lists and mappings of it.
    """
    converter = _converter(hint)
    try:
        return UNDECIDED if converter is None else converter(data)
    except ValueError:
        return UNDECIDED


_Converter = Callable[[Any], Any]
"""Returns the value for data; raises ``ValueError`` if it is not plain."""


def _converter(hint: Any) -> _Converter | None:
    """Returns what converts data to a type; ``None`` if the type is not plain."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _optional(arguments)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if origin is Literal:
        return _one_of({each: each for each in arguments})
    if origin is Mapping and arguments in ((str, str), (str, Any), (str, str | list[str])):
        return _mapping
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _one_of({each.value: each for each in hint})
    return {str: _text, bool: _one_of(_BOOLEANS), int: _int, float: _float}.get(hint)


def _optional(arguments: tuple[Any, ...]) -> _Converter | None:
    """Returns the converter of a type or ``None``; data is never ``None``."""
    others = [each for each in arguments if each is not NoneType]
    return _converter(others[0]) if len(others) == 1 else None


def _annotated(hint: Any, annotations: tuple[Any, ...]) -> _Converter | None:
    value_of = parse_duration if Unit("seconds") in annotations else _converter(hint)
    limits = [each for each in annotations if not isinstance(each, Unit)]
    if value_of is None or not all(isinstance(each, Ge | Gt | Le) for each in limits):
        return None

    def converted(data: Any) -> Any:
        value = value_of(_text(data))
        _require(all(_within(value, limit) for limit in limits))
        return value

    return converted


def _within(value: Any, limit: Any) -> bool:
    match limit:
        case Ge(least):
            return bool(value >= least)
        case Gt(less):
            return bool(value > less)
        case _:
            return bool(value <= limit.le)


def _one_of(values: Mapping[str, Any]) -> _Converter:
    def converted(data: Any) -> Any:
        _require(_text(data) in values)
        return values[data]

    return converted


def _text(data: Any) -> str:
    _require(isinstance(data, str))
    return str(data)


def _int(data: Any) -> int:
    _require(_INT.fullmatch(_text(data)))
    return int(data)


def _float(data: Any) -> float:
    _require(_FLOAT.fullmatch(_text(data)))
    return float(data)


def _mapping(data: Any) -> Any:
    _require(isinstance(data, Mapping) and all(isinstance(each, str) for each in data.values()))
    return data


def _require(condition: object) -> None:
    if not condition:
        raise ValueError("not plain")
