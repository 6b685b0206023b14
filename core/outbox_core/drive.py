"""Drives a generator of requests: the thin part between what decides and what does I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


def drive(steps: Generator[Request, Any, Result], carry_out: Callable[[Request], Any]) -> Result:
    """Runs a generator to its end on this thread, and returns its result.

    Sends in what ``carry_out`` returns for each request, and throws in the errors that it raises.

    Raises:
        Exception: What the generator raises, or does not handle.
    """
    try:
        request = next(steps)
        while True:
            try:
                reply = carry_out(request)
            except Exception as error:  # noqa: BLE001 - the generator decides, and raises it again
                request = steps.throw(error)
            else:
                request = steps.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result
