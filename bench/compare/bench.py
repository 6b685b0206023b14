"""One run: its servers, candidates and results, and the loop over rounds, cases and candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.compare.candidates import Candidate, CandidateError
from bench.compare.meter import Values
from bench.compare.results import Measurement, Results
from bench.compare.servers import Servers, say


@dataclass(slots=True)
class Bench:
    """A run.

    Attributes:
        servers: Its servers.
        candidates: Name → candidate, those that were asked for.
        rounds: How many times everything is measured.
        results: What was measured so far.
        out: The file of the results, which is written after each measurement.
    """

    servers: Servers
    candidates: Mapping[str, Candidate]
    rounds: int
    results: Results
    out: Path
    _missing: dict[str, str] = field(default_factory=dict)

    def prepare(self, candidates: Sequence[str]) -> None:
        """Fetches what candidates need; those that cannot be had are reported instead of measured."""
        for name in candidates:
            try:
                self.candidates[name].prepare()
            except CandidateError as error:
                self._missing[name] = f"not measured: {error}"
                say(f"{name}: {self._missing[name]}")

    def measure(
        self,
        table: str,
        cases: Mapping[str, Callable[[Candidate], Values]],
        candidates: Sequence[str],
    ) -> None:
        """Measures every candidate in every case, as many times as there are rounds.

        The candidates of one case take turns, each round beginning with another one. A failure is recorded,
        and the others go on.

        Args:
            table: The table's name.
            cases: What is done → a function that does it with a candidate.
            candidates: Their names.
        """
        for round_ in range(1, self.rounds + 1):
            shift = (round_ - 1) % max(1, len(candidates))
            for case, take in cases.items():
                for name in (*candidates[shift:], *candidates[:shift]):
                    self._once(Measurement(table, case, name, round_), take)

    def _once(self, what: Measurement, take: Callable[[Candidate], Values]) -> None:
        values: Values = {}
        failure = self._missing.get(what.candidate, "")
        if not failure:
            try:
                values = take(self.candidates[what.candidate])
            # Whatever goes wrong with one candidate, the others are measured.
            except Exception as error:  # noqa: BLE001
                failure = f"{type(error).__name__}: {error}"
        done = Measurement(what.table, what.case, what.candidate, what.round, values, failure)
        self.results.measurements.append(done)
        self.results.write(self.out)
        shown = f"FAILED: {failure}" if failure else headline(values)
        say(f"{what.table}, round {what.round}: {what.case}: {what.candidate}: {shown}")


def headline(values: Values) -> str:
    """Returns the first figures in one line."""
    return ", ".join(f"{name} {number:,.4g}" for name, number in list(values.items())[:6])
