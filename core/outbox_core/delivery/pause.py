"""The pause between two transactions of a lane; its length follows from how long the last ones took.

A broker confirms a commit before it has written all of the transaction's markers, and refuses the next one
until then. Kafka's client asks again after 20 ms, which no setting changes. So a pause that is a little too
short costs the records that wait much more than one that is a little too long.
"""

from __future__ import annotations

LATE_SECONDS = 0.015
LATE_SHARE = 1.5
"""A transaction that exceeds the usual duration by both was probably refused at first."""
STEP_SECONDS = 0.0005
"""How much longer the pause is after a late transaction."""
LASTING = 1000
"""After so many transactions that were not late the pause is about a third as long."""
MOST_SECONDS = 0.003
"""The longest pause."""
LEAST_USUAL = 0.001
GROWTH = 1.05
"""What is usual follows the median: by so much with each transaction."""
SHARE = 1 / 16
"""The share of the last selection in what one usually takes."""


class Pause:
    """How long a lane waits between the end of a transaction and the next one, outside of a backlog.

    Attributes:
        seconds: The pause.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._usual = 0.0
        self._selection = 0.0

    @property
    def gathering(self) -> float:
        """For how long a selection waits, to end with the pause: what is committed meanwhile is in it."""
        return max(0.0, self.seconds - self._selection)

    def selected(self, seconds: float) -> None:
        """Adapts to the duration of a selection."""
        self._selection += SHARE * (seconds - self._selection)

    def committed(self, seconds: float) -> None:
        """Adapts to the duration of a transaction."""
        usual = self._usual or max(seconds, LEAST_USUAL)
        is_late = seconds > max(usual + LATE_SECONDS, usual * LATE_SHARE)
        change = STEP_SECONDS if is_late else -self.seconds / LASTING
        self.seconds = min(self.seconds + change, MOST_SECONDS)
        self._usual = usual * GROWTH if seconds > usual else max(usual / GROWTH, LEAST_USUAL)
