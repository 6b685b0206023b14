"""The JSON schema of a configuration, for editors, made of the classes that it is decoded into.

It takes what the reader takes, and refuses unknown keys and values of a wrong kind. What depends on other
values (required options, bounds between two settings) only the reader finds.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge
from outbox_api.application.registry import Seam, find, installed
from outbox_api.seams.hooks import Unit, is_given
from outbox_api.support.file_text import FileText

from outbox_core.config.decode import Raw, camel
from outbox_core.config.harvest import DEFAULT_DRIVERS, WITHOUT_EFFECT, HarvestKeys
from outbox_core.config.outboxes import OF_THE_PROCESS
from outbox_core.config.reader import FileKeys
from outbox_core.text.duration import PATTERN

Schema = dict[str, Any]

_REPLACED = r"\$\{"
"""In a value, of whatever kind, that comes from the environment or a file."""
_TRUTHS = "^(true|false|yes|no|on|off|True|False|Yes|No|On|Off|TRUE|FALSE|YES|NO|ON|OFF)$"
_KINDS: Schema = {
    "text": {"type": ["string", "number", "boolean", "null"]},
    "truth": {"type": ["boolean", "string", "null"], "pattern": f"{_TRUTHS}|{_REPLACED}"},
    "integer": {"type": ["integer", "string", "null"], "pattern": rf"^[+-]?\d+$|{_REPLACED}"},
    "number": {"type": ["number", "string", "null"], "pattern": rf"^[+-]?[\d.]+(e[+-]?\d+)?$|{_REPLACED}"},
    "duration": {
        "type": ["string", "integer", "null"],
        "pattern": f"^({PATTERN})$|{_REPLACED}",
        "maximum": 0,
    },
}
_NAMES: dict[Any, str] = {str: "text", bool: "truth", int: "integer", float: "number"}
_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n     .*)*)", re.MULTILINE)


def schema() -> Schema:
    """Returns the schema, with the options of every driver that is installed."""
    drivers = {seam: _drivers(seam) for seam in Seam}
    harvest = _section(HarvestKeys)
    without_effect = {"description": "Accepted, as goharvest has it, and without effect."}
    harvest["properties"]["limits"]["properties"] |= dict.fromkeys(sorted(WITHOUT_EFFECT), without_effect)
    harvest["properties"] |= _choices(drivers, DEFAULT_DRIVERS)
    inherited = _choices(drivers, {})  # an outbox has the driver of harvest unless it names another
    one = {**harvest, "properties": {**harvest["properties"], **inherited}}
    one["properties"] |= dict.fromkeys(OF_THE_PROCESS, False)
    top = _section(FileKeys)
    top["properties"]["harvest"] = _ref("harvest")
    top["properties"]["outboxes"] = {"type": "object", "minProperties": 1, "additionalProperties": one}
    options = {f"{seam}-{name}": each for seam, found in drivers.items() for name, each in found.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",  # which every editor knows
        "title": "Configuration of outbox",
        **top,
        "type": "object",
        "definitions": {**_KINDS, "harvest": harvest, **options},
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _drivers(seam: Seam) -> dict[str, Schema]:
    """Returns the name of each driver of a seam → the schema of its section."""
    names = [each.name for each in installed() if seam in each.seams]
    sections = {name: _section(find(seam, name).options) for name in names}
    for section in sections.values():
        section["properties"]["driver"] = True
    return sections


def _choices(drivers: Mapping[Seam, Mapping[str, Schema]], defaults: Mapping[Seam, str]) -> Schema:
    """Returns the key of each seam → the schema of what is written there."""
    choices = {str(seam): _choice(seam, [*found], defaults.get(seam)) for seam, found in drivers.items()}
    choices[Seam.TRANSFORM] = {"type": ["array", "null"], "items": choices[Seam.TRANSFORM]}
    return choices


def _choice(seam: Seam, names: list[str], default: str | None) -> Schema:
    """Returns the schema of a driver's name, or of its section; unless it is installed, with any keys."""
    cases = []
    for name in names:
        of_this: Schema = {"type": "object", "properties": {"driver": {"const": name}}}
        if name != default:
            of_this["required"] = ["driver"]
        cases.append({"if": of_this, "then": _ref(f"{seam}-{name}")})
    offered = {"enum": names}  # by editors
    return {
        "anyOf": [offered, {"type": ["string", "object", "null"]}],
        "properties": {"driver": {"anyOf": [offered, {"type": "string"}]}},
        "allOf": cases,
    }


def _section(kind: type[Any]) -> Schema:
    hints, about = get_type_hints(kind, include_extras=True), _descriptions(kind)
    properties: Schema = {}
    for each in fields(kind):
        if each.init and not is_given(each):
            described = {"description": about[each.name]} if each.name in about else {}
            properties[camel(each.name)] = {**_value(hints[each.name]), **described}
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _descriptions(kind: type[Any]) -> dict[str, str]:
    """Returns what a docstring says of attributes."""
    text = inspect.getdoc(kind) or ""
    return {name: " ".join(about.split()) for name, about in _ATTRIBUTE.findall(text)}


def _value(hint: Any) -> Schema:  # noqa: PLR0911 - one for each kind of type
    """Returns the schema of a value; null is as good as not written."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _NAMES:
        return _ref(_NAMES[hint])
    if is_dataclass(hint) and isinstance(hint, type):
        return _section(hint)
    if origin is Literal or (inspect.isclass(hint) and issubclass(hint, Enum)):
        return {"anyOf": [{"enum": [*_spellings(hint), None]}, {"type": "string", "pattern": _REPLACED}]}
    if hint != Raw and origin is Annotated:
        return _annotated(*arguments)
    if origin in (Union, UnionType):
        kinds = [_value(each) for each in arguments if each not in (NoneType, FileText)]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if origin is Mapping:
        return {"type": ["object", "null"], "additionalProperties": _value(arguments[1])}
    if origin in (list, tuple, Sequence):
        return {"type": ["array", "null"], "items": _value(arguments[0])}
    return {}


def _annotated(kind: Any, *extras: Any) -> Schema:
    if any(isinstance(each, Unit) and each.name == "seconds" for each in extras):
        return _ref("duration")
    bounds = [{"minimum": each.ge} for each in extras if isinstance(each, Ge)]
    return {"allOf": [_value(kind), *bounds]} if bounds else _value(kind)


def _spellings(hint: Any) -> list[Any]:
    """Returns what an enumeration takes; some take any case."""
    if get_origin(hint) is Literal:
        return [*get_args(hint)]
    values = [each.value for each in hint]
    if "_missing_" in vars(hint):
        values += [longer for each in values if hint._missing_(longer := f"{each}ing")]
        values += [spelt for each in values for spelt in (each.capitalize(), each.upper())]
    return values
