"""Draining a backlog: rates cold and warm, and what a record costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from bench.compare.backlog import Backlog, Shape
from bench.compare.bench import Bench
from bench.compare.candidates import Candidate, CandidateError, Subject
from bench.compare.meter import Meter, Values, memory
from bench.compare.servers import Place


@dataclass(frozen=True, slots=True)
class Drain:
    """How backlogs are drained.

    Attributes:
        rows: Rows of one backlog.
        patience: Seconds after which a drain is cut off; the rate is then that of what was delivered.
    """

    rows: int
    patience: float

    def twice(self, bench: Bench, shape: Shape) -> Callable[[Candidate], Values]:
        """Returns a function that drains two backlogs with one candidate: one cold, then one warm."""

        def take(candidate: Candidate) -> Values:
            rows = shape.rows(self.rows)
            with (
                at_work(bench, candidate) as (place, subject),
                closing(Backlog(place, subject, shape, rows)) as backlog,
            ):
                cold = self.once(place, subject, backlog)
                warm = self.once(place, subject, backlog)
            return {**warm, "cold /s": cold["/s"]}

        return take

    def once(self, place: Place, subject: Subject, backlog: Backlog) -> Values:
        """Drains one backlog; returns the rate and what a record cost.

        Returns:
            ``/s``; CPU microseconds a record, of each role and of all; ``wal B`` and ``binlog B`` a
            record; ``syncs``, ``statements`` and ``statements ms`` a thousand records; ``memory MiB`` of the
            subject at the end; ``records``.

        Raises:
            CandidateError: The candidate ended, or delivered nothing.
        """
        with Meter(place, subject) as meter:
            backlog.fill()
            meter.start()
            backlog.drain(self.patience)
            used = meter.stop()
        delivered = backlog.delivered()
        if not delivered:
            raise CandidateError(f"nothing was delivered within {self.patience:g} s")
        return {
            "/s": delivered / used["seconds"],
            **per_record(used, delivered),
            "memory MiB": sum(memory(process.pid) for process in subject.processes.values()),
            "records": delivered,
        }


@contextmanager
def at_work(bench: Bench, candidate: Candidate) -> Iterator[tuple[Place, Subject]]:
    """Runs a candidate at a place of its own until the block ends."""
    with bench.servers.place(own_table=candidate.own_table) as place:
        candidate.install(place)
        with candidate.running(place) as subject:
            yield place, subject


def per_record(used: Values, records: int) -> Values:
    """Returns what a record cost, of what a :class:`Meter` counted."""
    found = {
        f"{name.removesuffix(' s')} µs": 1e6 * seconds / records
        for name, seconds in used.items()
        if name.startswith("cpu")
    }
    found |= {name: used[name] / records for name in ("wal B", "binlog B") if name in used}
    counts = ("syncs", "statements", "statements ms")
    found |= {f"{name} /1000": 1000 * used[name] / records for name in counts if name in used}
    return found
