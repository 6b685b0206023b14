"""A transform that does everything that a transform must not; tests install it as a plugin, ``odd``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from outbox_api import Driver, Outgoing, hookimpl


def _raising(error: BaseException) -> Callable[[Outgoing], Any]:
    def apply(_: Outgoing) -> Any:
        raise error

    return apply


def _changed(**changes: Any) -> Callable[[Outgoing], Any]:
    return lambda record: [record._replace(**changes)]


def _broken(record: Outgoing) -> Any:
    yield record
    raise OSError(record.value)


def _deep(record: Outgoing) -> Any:
    return _deep(record)


class _Text(str):
    __slots__ = ()


def _shipped(name: str, **options: Any) -> Callable[[Outgoing], Any]:
    def apply(record: Outgoing) -> Any:
        from outbox_core.transforms import shipped  # noqa: PLC0415 - it is loaded by then

        driver = getattr(shipped, name).outbox_transform()
        return driver.create(driver.options(**options)).apply(record)

    return apply


def _of_value(change: Callable[[str], Mapping[str, Any]]) -> Callable[[Outgoing], Any]:
    def apply(record: Outgoing) -> Any:
        value = record.value
        text = value.decode(errors="replace") if isinstance(value, bytes) else value or ""
        return [record._replace(**change(text))]

    return apply


_VALUES: tuple[Any, ...] = ({}, 5, bytearray(b"v"), memoryview(b"v"), b"\xff", b"v" * 2_000_000)
KINDS: tuple[Callable[[Outgoing], Any], ...] = (
    _of_value(lambda text: {"topic": text}),
    _of_value(lambda text: {"headers": ((text, text),)}),
    _of_value(lambda text: {"value": text * 3}),
    _of_value(lambda text: {"key": text}),
    _of_value(lambda text: {"topic": _Text(text)}),
    *map(_raising, (SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError(), StopIteration())),
    *map(_raising, (ValueError("\ud800"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"), TimeoutError())),
    lambda _: None,
    lambda _: "abc",
    lambda _: {"a": 1},
    lambda _: [None],
    lambda _: [],
    lambda _: iter([]),
    lambda record: [tuple(record)],
    lambda record: list(repeat(record, 40)),
    lambda record: [record, record._replace(topic="")],
    lambda record: [record, record._replace(partition=77)],
    _broken,
    _deep,
    *(_changed(topic=each) for each in (None, 5, b"orders", "\0", "w" * 250)),
    *(_changed(value=each) for each in _VALUES),
    *(_changed(headers=each) for each in (None, [("a",)], [("a", 5)], [(b"a", b"b")], [None], "ab", 5)),
    *(_changed(headers=each) for each in ([("\ud800", "v")], [("a", "\ud800")], [("a\0", "v")], {"a": "b"})),
    _changed(headers=[(f"name-{number}", "v") for number in range(10_000)]),
    *(_changed(partition=each) for each in ("x", 2**40, -5, True, 1.5, 2**31 - 1)),
    *(_changed(timestamp_ms=each) for each in (2**70, -(2**63), 0.5, "now", 0, True, 10**15)),
    *(_changed(id=each) for each in (0, None)),
    _changed(part=9),
    _changed(key=None),
    _shipped("TOPIC", to="{field.topic}"),
    _shipped("HEADERS", set={"a": "{field.topic}", "b\0": "{topic}"}),
    _shipped("REDACT", fields=("topic", "a.*.b"), replacement="x"),
    _shipped("CLOUDEVENTS", source="{field.topic}"),
    _shipped("IDENTITY", header=""),
)
"""What is done to a record whose key begins with ``t``, the index, and a colon."""


@dataclass(frozen=True)
class OddOptions:
    """None."""


class Odd:
    """Does what a record's key asks for."""

    def __init__(self, options: OddOptions) -> None:
        pass

    def apply(self, record: Outgoing) -> Any:
        """Returns whatever."""
        number, colon, _ = record.key.removeprefix("t").partition(":")
        if record.key.startswith("t") and colon and number.isdecimal():
            return KINDS[int(number)](record)
        return [record]


@hookimpl
def outbox_transform() -> Driver[Any]:
    """Offers it."""
    return Driver(OddOptions, Odd)
