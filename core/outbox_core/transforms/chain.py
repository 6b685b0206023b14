"""The transforms of an outbox, one behind the other: what they make of a row, and by what they are known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from traceback import extract_tb
from typing import Self

from outbox_api import (
    MarkedRecord,
    Outgoing,
    StoringTransform,
    Transform,
    TransformError,
    TransformUnavailable,
)
from outbox_api.application.stasher import problem_of_headers
from outbox_api.seams.hooks import GROUP, is_given
from outbox_api.seams.placement import placed

from outbox_core.settings import Choice

_DIGITS = 16
"""Length of a fingerprint: two that differ are not equal by chance."""


class Chain:
    """Transforms in the order in which they are applied; false if there are none."""

    def __init__(self, transforms: Sequence[tuple[str, Transform]], fingerprint: str) -> None:
        self._transforms = transforms
        self._stores = [each.store if isinstance(each, StoringTransform) else None for _, each in transforms]
        self.stores = any(self._stores)
        """Whether something has to be put elsewhere before what it makes is published."""
        self.fingerprint = fingerprint
        """Equal for chains that make the same of every row; empty without transforms."""

    @classmethod
    def of(cls, choices: Sequence[Choice[Transform]], identity: Callable[[], str]) -> Self:
        """Makes the chain of an outbox; asks for its identity only if a transform has to be given it."""
        known = [_with_identity(choice, identity) for choice in choices]
        made = [(choice.driver, choice.create()) for choice in known]
        return cls(made, _fingerprint(known) if known else "")

    def __bool__(self) -> bool:
        return bool(self._transforms)

    def outputs(self, row: MarkedRecord, *, stores: bool = False) -> Sequence[Outgoing]:
        """Returns what is published instead of a row, in this order.

        ``stores``: it is published now, so what has to be elsewhere before is put there.

        Raises:
            TransformError: Nothing can be made of it, or not now.
        """
        made: Sequence[Outgoing] = [
            Outgoing(
                row.id, 0, row.topic, row.key, row.value, tuple(row.headers), row.partition, row.timestamp_ms
            )
        ]
        for (name, transform), store in zip(self._transforms, self._stores, strict=True):
            try:
                if stores and store:
                    for record in made:
                        store(record)
                made = [each for record in made for each in transform.apply(record)]
                foreign = any(each.key != row.key for each in made)
                made = [each if each.part == at else each._replace(part=at) for at, each in enumerate(made)]
            except TransformError as error:
                kind = TransformUnavailable if error.retryable else TransformError
                raise kind(f"transform '{name}': {error}") from None
            except BaseException as error:  # such as SystemExit, which would end the thread without a word
                raise TransformError(f"transform '{name}' raised {without_values(error)}") from error
            if foreign:
                raise TransformError(f"transform '{name}' has changed the record's key")
        for output in made:
            if problem := _problem(output):
                raise TransformError(f"after its transforms, {problem}")
        try:
            return [
                each
                if each.partition is None and each.timestamp_ms is None
                else placed(each, each.partition, each.timestamp_ms)
                for each in made
            ]
        except ValueError as error:
            raise TransformError(f"after its transforms, {error}") from None


def _problem(output: Outgoing) -> str:
    """Says why no message can be made of an output, or nothing: types are mere hints."""
    if not isinstance(output.topic, str):
        return "a record's topic is not text"
    if not isinstance(output.value, str | bytes | None):
        return "a record's value is not text, bytes or None"
    if not all(isinstance(each, int | None) for each in (output.partition, output.timestamp_ms)):
        return "a record's partition or timestamp is not a number"
    return problem_of_headers(output.headers)


def _with_identity(choice: Choice[Transform], identity: Callable[[], str]) -> Choice[Transform]:
    """Returns the transform with the outbox's identity among its options, if it has a place for it."""
    if not any(field.name == "identity" and is_given(field) for field in fields(choice.options)):
        return choice
    return replace(choice, options=replace(choice.options, identity=identity()))


def _fingerprint(choices: Sequence[Choice[Transform]]) -> str:
    known = [(choice.driver, _version(choice.driver), repr(choice.options)) for choice in choices]
    return hashlib.sha256(repr(known).encode()).hexdigest()[:_DIGITS]


def _version(driver: str) -> str:
    """Returns the version of a driver's distribution; empty where that has none."""
    return "".join(entry.dist.version for entry in entry_points(group=GROUP, name=driver) if entry.dist)


def without_values(error: BaseException) -> str:
    """Describes an error whose message may quote a value: its type, and the line of the transform."""
    frames = extract_tb(error.__traceback__)
    at = next((frame for frame in frames if frame.filename != __file__), frames[-1])
    return f"{type(error).__name__} ({Path(at.filename).name}, line {at.lineno})"
