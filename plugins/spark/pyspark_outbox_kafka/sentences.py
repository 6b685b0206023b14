"""What a user of Spark reads of an error: its sentence, without the calls that led to it; without PySpark."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from socket import gethostname
from typing import ParamSpec, TypeVar

from outbox_api import OutboxError, PluginError

log = logging.getLogger("outbox.spark")

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def in_a_sentence(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Has a function's errors end in one sentence: Spark shows their traceback, with whatever caused them."""

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return function(*args, **kwargs)
        except ImportError as error:
            raise not_installed(error) from None
        except OutboxError as error:
            log.debug("what led to it", exc_info=True)
            raise error.with_traceback(None) from None

    return call


def not_installed(error: ImportError) -> PluginError:
    """Returns what to say where a distribution is missing, as on executors of another environment."""
    return PluginError(
        f"the Python of a task lacks something ({error}): install on executors what the driver "
        f"has; it is {sys.executable} on {gethostname()}"
    )
