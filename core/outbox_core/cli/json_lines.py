"""Log lines as JSON, one object in each line, for whoever collects logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from outbox_core.log_context import fields_of


class JsonLines(logging.Formatter):
    """Writes a record as a JSON object in one line of ASCII, whatever it says.

    Always has ``time``, ``level``, ``logger`` and ``message``. Where known, ``harvester``, ``outbox``,
    ``lane``, ``token``, ``event``, ``error``, ``error_type``, ``left_out`` and ``traceback`` follow.

    Args:
        redact: Removes secrets from a text.
        time_of: Returns a record's time as text.
    """

    def __init__(self, redact: Callable[[str], str], time_of: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._redact = redact
        self._time_of = time_of

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        told: dict[str, str | int] = {
            "time": self._time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if left_out := getattr(record, "left_out", 0):
            told["left_out"] = left_out
        if traceback := self._traceback(record):
            told["traceback"] = traceback
        return json.dumps({name: self._clean(value) for name, value in told.items()})

    def _traceback(self, record: logging.LogRecord) -> str:
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        parts = (record.exc_text, self.formatStack(record.stack_info) if record.stack_info else "")
        return "\n".join(part for part in parts if part)

    def _clean(self, value: object) -> str | int:
        """Returns a value without secrets, and without half surrogates, which not every reader takes."""
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)
        return self._redact(str(value)).encode("utf-8", "replace").decode()
