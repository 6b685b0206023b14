"""Log lines of a coordinator that does not answer, few enough to be read."""

from __future__ import annotations

import logging


class ErrorLog:
    """Warns once of each error until an answer arrives, and then says so; repetitions are debug lines.

    For one thread.
    """

    def __init__(self, log: logging.Logger, election: str) -> None:
        """Starts as if there had been an answer.

        Args:
            log: Receives the lines.
            election: What the processes compete for; every line names it.
        """
        self._log = log
        self._election = election
        self._warned: set[str] = set()

    def failed(self, error: Exception) -> None:
        """Handles an error."""
        text = str(error)
        level = logging.DEBUG if text in self._warned else logging.WARNING
        self._warned.add(text)
        self._log.log(level, "election '%s': %s", self._election, text)

    def answered(self) -> None:
        """Handles an answer."""
        if self._warned:
            self._warned.clear()
            self._log.info("election '%s': answered again", self._election)
