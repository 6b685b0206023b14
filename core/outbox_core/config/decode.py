"""Decodes a section of the YAML tree into a dataclass: our own settings, or a plugin's options."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from outbox_api.base.errors import ConfigError, PluginError
from outbox_api.seams.hooks import Unit, is_given
from outbox_api.support.file_text import FileText, present_text
from pydantic import BeforeValidator, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from outbox_core.config.document import Items, Node, Section, is_null
from outbox_core.config.problems import Problems, join
from outbox_core.text.duration import parse_duration

Kind = TypeVar("Kind")

_SECRET = re.compile(r"pass[wp]|secret|token|credential|private|source|dsn", re.IGNORECASE)
_MAX_SHOWN = 40
_UNSET: Any = object()
_EXPECTED = {
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "int_type": "expected a whole number",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "dict_type": "expected a mapping of keys to values",
    "mapping_type": "expected a mapping of keys to values",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
}

Raw = Annotated[Node | None, "not decoded"]
"""The type of a field whose node the caller decodes."""


def camel(name: str) -> str:
    """Returns the key that users write for the field ``name``: ``leader_group_id`` → ``leaderGroupID``."""
    head, *rest = name.split("_")
    return head + "".join("ID" if part == "id" and part is rest[-1] else part.capitalize() for part in rest)


def decode(
    kind: type[Kind],
    section: Section,
    path: str,
    problems: Problems,
    defaults: Mapping[str, Any] | None = None,
) -> Kind | None:
    """Creates an instance of a dataclass from a section; ``None`` if that has added a problem.

    Each field is a key in camelCase. ``defaults`` has values to use instead of the class's own, by field.

    Raises:
        PluginError: The class's fields cannot be decoded, or core does not give one that it has to give.
    """
    before, defaults = len(problems.found), defaults or {}
    keys = {camel(field.name): field for field in fields(kind) if field.init and not is_given(field)}  # type: ignore[arg-type]  # a dataclass
    hints = _hints(kind)
    for key, (place, _) in section.entries.items():
        if key not in keys:
            problems.unknown_key(place, path, key, list(keys), _nested_keys(keys, hints))
    values = _given(kind, defaults)
    for key, field in keys.items():
        value = _UNSET
        if not is_null(section.value(key)):
            value = _field(field, hints[field.name], section.entries[key][1], join(path, key), problems)
        if value is _UNSET and field.name in defaults:
            value = _given_text(defaults[field.name], hints[field.name])
        if value is not _UNSET:
            values[field.name] = value
        elif field.default is MISSING and field.default_factory is MISSING and is_null(section.value(key)):
            problems.add(section.place, join(path, key), "missing, and it has no default")
    if len(problems.found) > before:
        return None
    try:
        return kind(**values)
    except (ConfigError, ValueError) as error:
        problems.add(section.place, path, str(error))
        return None


def takes_files(hint: Any) -> bool:
    """Returns whether a value of the type may refer to files: the type names ``FileText``, or is any."""
    return hint in (FileText, Any) or any(takes_files(part) for part in get_args(hint))


def _given(kind: type[Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of the fields that core gives."""
    names = [field.name for field in fields(kind) if is_given(field)]
    if unknown := [name for name in names if name not in defaults]:
        raise PluginError(
            f"{kind.__module__}.{kind.__qualname__} declares the option '{unknown[0]}' as GIVEN, but outbox "
            "gives no value of that name; see outbox_api.Driver"
        )
    return {name: defaults[name] for name in names}


def _given_text(value: Any, hint: Any) -> Any:
    """Returns a value that core gives, with texts instead of references to files if the type has no place."""
    if takes_files(hint):
        return value
    if isinstance(value, Mapping):
        return {key: _given_text(part, hint) for key, part in value.items()}
    return present_text(value) if isinstance(value, FileText) else value


def _nested_keys(keys: Mapping[str, Field[Any]], hints: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the keys of each section nested in this one, by that section's key."""
    kinds = {
        key: _one_or_several(hints[field.name]) or _without_none(hints[field.name])
        for key, field in keys.items()
    }
    return {
        key: [camel(field.name) for field in fields(kind)]
        for key, kind in kinds.items()
        if is_dataclass(kind)
    }


def _field(field: Field[Any], hint: Any, node: Node, path: str, problems: Problems) -> Any:
    inner = _without_none(hint)
    if hint == Raw:
        return node
    if is_dataclass(inner) and isinstance(inner, type):
        if not isinstance(node, Section):
            problems.add(node.place, path, "expected a mapping of keys to values")
            return _UNSET
        return decode(inner, node, path, problems)
    if several := _one_or_several(hint):
        nodes = node.values if isinstance(node, Items) else [node]
        parts = [
            _field(field, several, each, path if each is node else f"{path}[{place}]", problems)
            for place, each in enumerate(nodes)
        ]
        return parts[0] if nodes == [node] else tuple(parts)
    try:
        plain = _plain_data(node, files=takes_files(hint), nulls=_takes_nulls(hint))
        return _adapter(hint).validate_python(plain)
    except ValidationError as error:
        hide_value = not field.repr or bool(_SECRET.search(field.name))
        _add_problems(error, node, path, problems, hide_value=hide_value)
        return _UNSET


def _plain_data(node: Node, *, files: bool, untyped: bool = False, nulls: bool = False) -> Any:
    """Returns the tree as plain data.

    Keys without a value are left out, unless ``nulls`` keeps them, and booleans, as they are. In a mapping
    without types, such as Kafka's settings, YAML's booleans (``yes``, ``off``, …) become ``true`` and
    ``false``. With ``files`` a value that refers to files keeps the references,
    except in a list within a mapping without types.
    """
    if isinstance(node, Section):
        return {
            key: _plain_data(value, files=files, untyped=True, nulls=nulls)
            for key, (_, value) in node.entries.items()
            if nulls or not is_null(value)
        }
    if isinstance(node, Items):
        return [
            _plain_data(value, files=files and not untyped, untyped=untyped, nulls=nulls)
            for value in node.values
        ]
    if nulls and node.boolean is not None:
        return node.boolean
    if files and node.files is not None:
        return node.files
    return str(node.boolean).lower() if untyped and node.boolean is not None else node.text


def _add_problems(
    error: ValidationError, node: Node, path: str, problems: Problems, *, hide_value: bool
) -> None:
    """Adds what is wrong; alternatives for one value become one problem."""
    wanted: dict[str, tuple[Node, list[str]]] = {}
    for detail in error.errors(include_url=False, include_input=False):
        if detail["type"] == "is_instance_of":
            continue  # whoever writes text need not know that a reference to a file would do as well
        at, where = node, path
        for step in detail["loc"]:
            if isinstance(at, Section) and step in at.entries:
                at, where = at.entries[str(step)][1], join(where, str(step))
            elif isinstance(at, Items) and isinstance(step, int):
                at, where = at.values[step], f"{where}[{step}]"
        wanted.setdefault(where, (at, []))[1].append(_expected(detail))
    for where, (at, messages) in wanted.items():
        first, *others = dict.fromkeys(messages)
        message = " or ".join([first, *(other.removeprefix("expected ") for other in others)])
        problems.add(at.place, where, message + _found_text(at, hide_value=hide_value or at is not node))


def _expected(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind in ("enum", "literal_error"):
        return f"expected {context['expected']}"
    if kind == "greater_than":
        return f"expected more than {context['gt']:g}"
    if kind == "greater_than_equal":
        return f"expected at least {context['ge']:g}"
    return detail["msg"].removeprefix("Value error, ").replace("Input should be", "expected")


def _found_text(node: Node, *, hide_value: bool) -> str:
    """Describes what was found instead; shows a value only if it cannot be a secret."""
    if isinstance(node, Section):
        return ", found a mapping"
    if isinstance(node, Items):
        return ", found a list"
    if hide_value or node.substituted or node.text is None:
        return ""
    return f", found '{node.text}'" if len(node.text) <= _MAX_SHOWN else ""


def _takes_nulls(hint: Any) -> bool:
    """Returns whether a type is a mapping in which null is a value."""
    return get_origin(hint) is Mapping and NoneType in get_args(get_args(hint)[1])


def _one_or_several(hint: Any) -> type[Any] | None:
    """Returns the dataclass of which a type takes one, or several in a list; ``None`` for another type."""
    for part in get_args(hint):
        if is_dataclass(part) and isinstance(part, type) and hint == part | tuple[part, ...]:  # type: ignore[valid-type]
            return part
    return None


def _without_none(hint: Any) -> Any:
    others = [part for part in get_args(hint) if part is not NoneType]
    return others[0] if get_origin(hint) in (Union, UnionType) and len(others) == 1 else hint


def _hints(kind: type[Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            hint = hints[field.name]
            if field.init and hint != Raw and not is_dataclass(_one_or_several(hint) or _without_none(hint)):
                _adapter(hint)
    except (NameError, TypeError, PydanticUserError) as error:
        raise PluginError(
            f"the options of {kind.__module__}.{kind.__qualname__} cannot be read: {error}"
        ) from error
    return hints


def _is_duration(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return any(isinstance(extra, Unit) and extra.name == "seconds" for extra in get_args(hint)[1:])
    return get_origin(hint) in (Union, UnionType) and any(_is_duration(part) for part in get_args(hint))


def _seconds(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    """Returns pydantic's adapter of a type, which takes longer to make than to use; many fields share one."""
    return TypeAdapter(Annotated[hint, BeforeValidator(_seconds)] if _is_duration(hint) else hint)
