"""The table of plugins and tests, from pytest's reports in JUnit format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from outbox_testkit.conformance.base import NOT_DECLARED
from outbox_testkit.conformance.dialect import THEMES as DIALECTS
from outbox_testkit.conformance.elector import THEMES as ELECTORS

SUITES: Mapping[str, Mapping[str, type[object]]] = {"dialects": DIALECTS, "electors": ELECTORS}
"""The themes of each suite."""

Matrix = Mapping[str, Mapping[str, "Outcome"]]
"""Plugin (a database, an elector) → test → outcome."""


class State(IntEnum):
    """The outcome of a test; of several variants, the greatest counts."""

    NOT_RUN = 0
    SKIPPED = 1
    PASSED = 2
    FAILED = 3


_WORDS = {
    State.PASSED: "passed",
    State.SKIPPED: "skipped",
    State.NOT_RUN: "not run here",
    State.FAILED: "failed",
}
_OTHER = "not for a capability but "


class Outcome(NamedTuple):
    """The outcome of a test of one plugin.

    Attributes:
        state: The outcome.
        reason: The missing capability for which it was skipped, or another reason.
    """

    state: State
    reason: str = ""

    def __str__(self) -> str:
        match self.state:
            case State.NOT_RUN:
                return "not run here"
            case State.SKIPPED:
                return f"skipped: {self.reason}"
            case State.PASSED:
                return "passed"
            case _:
                return "**failed**"


def suite(name: str = "dialects") -> dict[str, list[str]]:
    """Returns the tests of each theme of a suite, in the order in which they are written."""
    themes = SUITES[name].items()
    return {theme: [test for test in vars(kind) if test.startswith("test_")] for theme, kind in themes}


def read(reports: Iterable[str], tests: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Outcome]]:
    """Reads reports of a suite's tests, each given as ``path``, or ``name=path`` to name its plugin.

    Otherwise the name of the plugin is that of the plugin's class, without ``Test``. A class with only some
    of the suite's themes is left out.
    """
    known = {name for names in tests.values() for name in names}
    matrix: dict[str, dict[str, Outcome]] = {}
    for report in reports:
        name, _, path = report.rpartition("=")
        for kind, outcomes in _classes(Path(path), known).items():
            if len(outcomes) > len(known) / 2:
                column = matrix.setdefault(name or kind.removeprefix("Test"), {})
                for test, outcome in outcomes.items():
                    column[test] = max(outcome, column.get(test, outcome))
    return matrix


def render(matrix: Matrix, tests: Mapping[str, Sequence[str]]) -> str:
    """Returns the table in Markdown, with a line for the totals."""
    lines = [_line(["", *matrix]), _line(["---"] * (len(matrix) + 1))]
    for theme, names in tests.items():
        lines.append(_line([f"**{theme}**", *[""] * len(matrix)]))
        for name in names:
            outcomes = [str(column.get(name, Outcome(State.NOT_RUN))) for column in matrix.values()]
            lines.append(_line([name.removeprefix("test_").replace("_", " "), *outcomes]))
    return "\n".join([*lines, _line(["**sum**", *(_sum(column, tests) for column in matrix.values())])])


def sound(matrix: Matrix) -> bool:
    """Returns whether no test failed, and tests were skipped only for missing capabilities."""
    return not any(
        outcome.state is State.FAILED or outcome.reason.startswith(_OTHER)
        for column in matrix.values()
        for outcome in column.values()
    )


def _classes(report: Path, known: Iterable[str]) -> dict[str, dict[str, Outcome]]:
    classes: dict[str, dict[str, Outcome]] = {}
    # The report is our own, so it is trusted.
    for case in ET.parse(report).getroot().iter("testcase"):
        test = case.get("name", "").partition("[")[0]
        if test in known:
            outcomes = classes.setdefault(case.get("classname", "").rpartition(".")[2], {})
            outcome = _outcome(case)
            outcomes[test] = max(outcome, outcomes.get(test, outcome))
    return classes


def _outcome(case: ET.Element) -> Outcome:
    if case.find("failure") is not None or case.find("error") is not None:
        return Outcome(State.FAILED)
    skipped = case.find("skipped")
    if skipped is None:
        return Outcome(State.PASSED)
    reason = skipped.get("message", "")
    if reason.startswith(NOT_DECLARED):
        return Outcome(State.SKIPPED, reason.removeprefix(NOT_DECLARED))
    return Outcome(State.SKIPPED, f"{_OTHER}{reason}")


def _sum(column: Mapping[str, Outcome], tests: Mapping[str, Sequence[str]]) -> str:
    every = [name for names in tests.values() for name in names]
    count = Counter(column.get(name, Outcome(State.NOT_RUN)).state for name in every)
    return ", ".join(f"{count[state]} {word}" for state, word in _WORDS.items() if count[state])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
