"""Sets up logging to stderr: for people on a terminal, for machines elsewhere, never with a secret."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from outbox_core.cli.terminal import messages
from outbox_core.settings.logs import LogFormat, LogLevel
from outbox_core.text.log_context import HarvesterFilter, fields_of
from outbox_core.text.printable import printable
from outbox_core.text.redaction import redact


class JsonLines(logging.Formatter):
    """Writes a record as a JSON object in one line of ASCII, whatever it says.

    Always has ``time``, ``level``, ``logger`` and ``message``. Where known, ``harvester``, ``outbox``,
    ``lane``, ``token``, ``event``, ``error``, ``error_type``, ``error_code``, ``left_out`` and ``traceback``
    follow.
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


TRACE = 5
"""More than debug, as in goharvest."""

_LEVELS = {
    LogLevel.TRACE: TRACE,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}
_CHATTY = ("py4j", "pyspark", "asyncio", "uvicorn")
"""Loggers of others that say more than anybody wants to read below a warning."""


class Redacting(logging.Formatter):
    """Writes a record as one line, whatever it says, and below it, indented, the traceback if there is one.

    So no text of others can look like another line of the log. Removes passwords; a safeguard, since no code
    should log one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, and the traceback if there is one."""
        line, _, traceback = super().format(record).partition("\n")
        below = redact(traceback).split("\n") if traceback else []
        return "\n".join([line, *(f"    {printable(each)}" for each in below)])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in the base class
        """Returns the line, the code of its error, and how many like it were left out before it."""
        left_out = getattr(record, "left_out", 0)
        code = f" [{code}]" if (code := getattr(record, "error_code", "")) else ""
        more = f" ({left_out:,} more such lines were left out)" if left_out else ""
        return printable(redact(super().formatMessage(record)) + code) + more

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002 - as in the base class
        """Returns the time as ISO 8601 in UTC with milliseconds."""
        return time_of(record)


def time_of(record: logging.LogRecord) -> str:
    """Returns a record's time as ISO 8601 in UTC with milliseconds."""
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configure_logging(level: LogLevel, harvester: str = "", form: LogFormat = LogFormat.TEXT) -> None:
    """Sends log records of ``level`` and above to stderr, in place of any earlier set-up."""
    logging.addLevelName(TRACE, "TRACE")
    handler = _handler(form, "[%(harvester)s] " if harvester else "")
    handler.addFilter(HarvesterFilter(harvester))
    if harvester:
        from outbox_core.text.repetitions import RepetitionFilter  # noqa: PLC0415 - what runs for long says much

        handler.addFilter(RepetitionFilter(handler))
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(_LEVELS[level], logging.WARNING))


def _handler(form: LogFormat, named: str) -> logging.Handler:
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if form is LogFormat.JSON:
        handler.setFormatter(JsonLines(redact, time_of))
    elif sys.stderr.isatty():
        from rich.logging import RichHandler  # noqa: PLC0415 - only a terminal needs it

        handler = RichHandler(console=messages(), show_path=False, log_time_format="%H:%M:%S")
        handler.setFormatter(Redacting(f"{named}%(message)s"))
    else:
        handler.setFormatter(Redacting(f"%(asctime)s %(levelname)-7s %(name)s {named}%(message)s"))
    return handler
