"""What the lanes of one outbox have done in this process, under all its leaderships."""

from __future__ import annotations

from threading import Lock

from outbox_core.leadership.leader import Leadership
from outbox_core.measurements import Durations, LaneWork, add_lanes, ended_lanes
from outbox_core.metrics import LaneMetrics


class Totals:
    """Sums whose counters never go back, whatever ends: a lane, a worker, a leadership, a harvest.

    Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._past: dict[int, LaneWork] = {}  # of earlier leaderships
        self._leadership: Leadership | None = None
        self._takeovers = Durations()
        self._silences = Durations()

    def begin(self, leadership: Leadership, seconds: float) -> None:
        """Counts a new leadership, whose lanes start so many seconds after the election."""
        with self._lock:
            self._leadership = leadership
            self._takeovers.add(seconds)

    def succeed(self, silence: float | None) -> None:
        """Counts for how long the lanes of the leader before had not been heard; ``None`` if nobody led."""
        if silence is not None:
            with self._lock:
                self._silences.add(silence)

    def end(self) -> None:
        """Keeps what the present leadership has done. Idempotent."""
        with self._lock:
            leadership, self._leadership = self._leadership, None
            if leadership is not None:
                self._past = add_lanes(self._past, ended_lanes(leadership.work()))

    @property
    def token(self) -> int | None:
        """The fence token of the present leadership; ``None`` without one."""
        leadership = self._leadership
        return None if leadership is None else leadership.token

    def metrics(self) -> LaneMetrics:
        """Returns the sum over all lanes."""
        with self._lock:
            metrics = sum((work.metrics for work in self._past.values()), LaneMetrics())
            return metrics if self._leadership is None else metrics + self._leadership.metrics()

    def work(self) -> dict[int, LaneWork]:
        """Returns what each lane has done."""
        with self._lock:
            return self._past if self._leadership is None else add_lanes(self._past, self._leadership.work())

    def failovers(self) -> Durations:
        """Returns the seconds from each election of this process until its lanes started."""
        with self._lock:
            return self._takeovers + Durations()

    def silences(self) -> Durations:
        """Returns the seconds from the last heartbeat of each former leader until this process led."""
        with self._lock:
            return self._silences + Durations()
