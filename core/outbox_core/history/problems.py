"""Which of an outbox's problems began and ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from outbox_core.health import Code, HealthProblem
from outbox_core.history.events import Change, HistoryEventCode

CALM = timedelta(seconds=30)
"""A problem has ended once it was not seen for so long; one that comes and goes would fill the history."""

_ENDED = {
    Code.OLD_RECORDS: "the oldest record is no longer too old",
    Code.BLOCKED_KEY: "no key has been failing for long any more",
    Code.TAKEN_OVER: "no more records of other clusters are taken over",
    Code.ORPHANS: "there are no more records of clusters that nobody serves",
    Code.OLD_SNAPSHOT: "no old snapshot keeps dead rows any more",
    Code.DEAD_ROWS: "there are no longer too many dead rows",
}
"""The problems whose begin and end are told here. Silence, parked keys and deliberate takeovers are told by
what changed."""


class Problems:
    """The problems that are present, and when each was seen last."""

    def __init__(self) -> None:
        self._seen: dict[Code, datetime] = {}

    def compare(self, at: datetime, found: Sequence[HealthProblem]) -> Iterator[Change]:
        """Says which problems began and ended, given those that are there now."""
        present = {problem.code: problem.message for problem in found if problem.code in _ENDED}
        for code, message in present.items():
            if code not in self._seen:
                yield HistoryEventCode.PROBLEM_BEGAN, message
            self._seen[code] = at
        for code, seen in list(self._seen.items()):
            if at < seen:  # the clock was set back
                self._seen[code] = at
            elif code not in present and at - seen >= CALM:
                del self._seen[code]
                yield HistoryEventCode.PROBLEM_ENDED, _ENDED[code]
