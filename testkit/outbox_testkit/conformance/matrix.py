"""The table of plugins and tests, from pytest's reports in JUnit format."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from io import StringIO
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
    State.NOT_RUN: "not run",
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
        return f"{_WORDS[self.state]}: {self.reason}" if self.reason else _WORDS[self.state]


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
    """Returns a table of the themes in Markdown, with a line for the totals.

    A number alone is that of the tests, which all passed.
    """
    themes = {**tests, "**sum**": [name for names in tests.values() for name in names]}
    rows = [[theme, *(_sum(column, names) for column in matrix.values())] for theme, names in themes.items()]
    return "\n".join(map(_line, [["theme", *matrix], ["---", *["--:"] * len(matrix)], *rows]))


def details(matrix: Matrix, tests: Mapping[str, Sequence[str]]) -> str:
    """Returns the outcome of each test of each plugin as CSV, with a head."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["theme", "test", *matrix])
    for theme, names in tests.items():
        for name in names:
            outcomes = (column.get(name, Outcome(State.NOT_RUN)) for column in matrix.values())
            rows.writerow([theme, name.removeprefix("test_").replace("_", " "), *outcomes])
    return text.getvalue()


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


def _sum(column: Mapping[str, Outcome], names: Sequence[str]) -> str:
    count = Counter(column.get(name, Outcome(State.NOT_RUN)).state for name in names)
    if count[State.PASSED] == len(names):
        return str(len(names))
    return ", ".join(f"{count[state]} {word}" for state, word in _WORDS.items() if count[state])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
