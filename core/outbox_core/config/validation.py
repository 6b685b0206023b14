"""Converts data to any type that pydantic knows, and says what is wrong with it."""

from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from outbox_sdk.hooks import Unit
from pydantic import BeforeValidator, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from outbox_core.config.duration import parse_duration

Mistake = tuple[tuple[int | str, ...], str]
"""The way to a value that is wrong (keys and positions), and what was expected."""

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


class InvalidDataError(Exception):
    """Data cannot become a value.

    Attributes:
        mistakes: What is wrong; several for one value are alternatives.
    """

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("the data does not have the type")
        self.mistakes = mistakes


def require_type(hint: Any) -> None:
    """Makes sure that data can become a value of the type.

    Raises:
        TypeError: It cannot.
    """
    try:
        _adapter(hint)
    except PydanticUserError as error:
        raise TypeError(str(error)) from error


def validate(hint: Any, data: Any) -> Any:
    """Returns a value of the type ``hint``.

    Args:
        hint: A type that passes :func:`require_type`.
        data: Text, or lists and mappings of it.

    Raises:
        InvalidDataError: The data cannot become one.
    """
    try:
        return _adapter(hint).validate_python(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        # Whoever writes text need not know that a reference to a file would do as well.
        told = [detail for detail in details if detail["type"] != "is_instance_of"]
        raise InvalidDataError([(detail["loc"], _expected(detail)) for detail in told]) from None


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
