"""Runs a generator of requests: connects code that decides with code that does I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Sleep:
    """Waits; a request that generators of several kinds yield. No reply."""

    seconds: float


def run_steps(steps: Generator[Request, Any, Result], execute: Callable[[Request], Any]) -> Result:
    """Runs a generator to its end on this thread, and returns its result.

    Calls ``execute`` with each request, and sends its result to the generator, or throws its error there.

    Raises:
        Exception: The generator raised it, or did not handle it.
    """
    try:
        request = next(steps)
        while True:
            try:
                reply = execute(request)
            except Exception as error:  # noqa: BLE001 - the generator decides, and raises it again
                request = steps.throw(error)
            else:
                request = steps.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result
