"""What a log line is about: the harvester, where several run in one process, its outbox, lane and token."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from outbox_api.base.errors import OutboxError

FIELDS = ("harvester", "outbox", "lane", "token", "event", "error", "error_type", "error_code")
"""The attributes of log records that say what a line is about; fields of JSON lines, in this order."""

_NOTHING = ("", None)
_ABOUT: ContextVar[Mapping[str, str | int]] = ContextVar("about", default={})  # noqa: B039 - never changed


@contextmanager
def log_as(harvester: str, **about: str | int) -> Iterator[None]:
    """Names the harvester in log lines of this thread, and of each :class:`ContextThread` that it starts."""
    with log_about(harvester=harvester, **about):
        yield


@contextmanager
def log_about(**about: str | int) -> Iterator[None]:
    """Sets some of :data:`FIELDS` for log lines, as :func:`log_as` does; others stay as they are."""
    token = _ABOUT.set({**_ABOUT.get(), **about})
    try:
        yield
    finally:
        _ABOUT.reset(token)


class HarvesterFilter(logging.Filter):
    """Sets those of :data:`FIELDS` that are known of a log record, and that its caller has not set.

    ``harvester`` is always set: the name of the harvester that the line is about. Add the filter to a
    handler, whose format may then use ``%(harvester)s``.
    """

    def __init__(self, default: str = "-") -> None:
        super().__init__()
        self._default = default

    def filter(self, record: logging.LogRecord) -> bool:
        """Sets the fields, and lets every record pass."""
        about = {"harvester": self._default, **_ABOUT.get(), **_error_of(record)}
        for name, value in about.items():
            if getattr(record, name, "") in _NOTHING:
                setattr(record, name, value)
        return True


def fields_of(record: logging.LogRecord) -> dict[str, str | int]:
    """Returns those of :data:`FIELDS` that a record has."""
    found = {name: getattr(record, name, "") for name in FIELDS}
    return {name: value for name, value in found.items() if value not in _NOTHING}


def _error_of(record: logging.LogRecord) -> Mapping[str, str]:
    """Returns the error that a line is about: that of its traceback, or one of its arguments."""
    error = record.exc_info[1] if record.exc_info else None
    arguments = record.args if isinstance(record.args, tuple) else ()
    error = error or next((each for each in arguments if isinstance(each, BaseException)), None)
    if error is None:
        return {}
    code = error.code if isinstance(error, OutboxError) else ""
    return {"error": str(error), "error_type": type(error).__name__, "error_code": code}
