"""The table of databases and tests says what the reports say."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from outbox_testkit.conformance.__main__ import main
from outbox_testkit.conformance.matrix import suite

OUTCOMES = Path(__file__).parents[2] / "docs" / "conformance.csv"
ALL = [name for names in suite().values() for name in names]
MARK, LANES = "test_marks_the_earliest_rows_in_order", "test_each_key_belongs_to_one_lane_and_stays_there"
WRITERS = '<skipped message="the plugin does not declare: concurrent writers" />'


def report(path: Path, kind: str, names: Sequence[str] = ALL, **outcomes: tuple[str, str]) -> str:
    """Writes a report in which both variants of every test passed, but for those named."""
    cases = dict.fromkeys(names, ("", "")) | outcomes
    body = "".join(
        f'<testcase classname="tests.test_x.{kind}" name="{name}[{variant}]">{outcome}</testcase>'
        for name, both in cases.items()
        for variant, outcome in zip("ab", both, strict=True)
    )
    path.write_text(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
    return str(path)


def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, dict[str, list[str]]]:
    """Runs the program; returns its exit code and the rows of both tables by their themes and tests.

    The last argument is a report.
    """
    details = Path(arguments[-1].rpartition("=")[2]).with_suffix(".csv")
    monkeypatch.setattr(sys, "argv", ["conformance", "--csv", str(details), *arguments])
    code = main()
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in capsys.readouterr().out.splitlines()]
    with details.open(newline="") as file:
        tests = {test: outcomes for _, test, *outcomes in csv.reader(file)}
    return code, {first: rest for first, *rest in rows} | tests


def test_every_test_has_a_row_and_every_database_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = report(tmp_path / "one.xml", "TestOne", **{LANES: (WRITERS, WRITERS), MARK: (WRITERS, "")})
    two = f"Two 9.1={report(tmp_path / 'two.xml', 'TestTwo')}"
    three = f"Three={report(tmp_path / 'three.xml', 'TestThree', [name for name in ALL if name != MARK])}"
    code, rows = printed(capsys, monkeypatch, one, two, three)
    assert code == 0
    assert rows["theme"] == rows["test"] == ["One", "Two 9.1", "Three"]
    assert rows["marks the earliest rows in order"] == ["passed", "passed", "not run"]
    lanes = rows["each key belongs to one lane and stays there"]
    assert lanes == ["skipped: concurrent writers", "passed", "passed"]
    count = len(ALL)
    assert rows["**sum**"] == [
        f"{count - 1} passed, 1 skipped", str(count), f"{count - 1} passed, 1 not run"
    ]  # fmt: skip
    marks = len(suite()["mark"])
    assert rows["mark"] == [f"{marks - 1} passed, 1 skipped", str(marks), f"{marks - 1} passed, 1 not run"]


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        ("<failure />", "failed"),
        ("<error />", "failed"),
        ('<skipped message="no time" />', "skipped: not for a capability but no time"),
    ],
)
def test_what_should_not_be_shows(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
    shown: str,
) -> None:
    both = ("", outcome) if "skipped" not in outcome else (outcome, outcome)
    code, rows = printed(capsys, monkeypatch, report(tmp_path / "one.xml", "TestOne", **{MARK: both}))
    assert code == 1
    assert rows["marks the earliest rows in order"] == [shown]


def test_electors_have_a_table_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for names in suite("electors").values() for name in names]
    one = report(tmp_path / "one.xml", "TestOne", names)
    code, rows = printed(capsys, monkeypatch, "--suite", "electors", one)
    assert code == 0
    assert rows["a killed leader is replaced whoever joins meanwhile"] == ["passed"]
    assert rows["**sum**"] == [str(len(names))]


def test_a_class_of_a_few_themes_has_no_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "few.xml"
    path.write_text(f'<testsuite><testcase classname="x.TestFew" name="{MARK}" /></testsuite>')
    assert printed(capsys, monkeypatch, str(path))[1]["theme"] == []


def test_the_documents_have_the_outcome_of_each_test_of_the_suite() -> None:
    """Otherwise the suite is to be run again, as the README of the testkit says."""
    with OUTCOMES.open(newline="", encoding="utf-8") as file:
        (*_, head), *rows = [[*row[:2], row[2:]] for row in csv.reader(file)]
    tests = [
        (theme, name.removeprefix("test_").replace("_", " ")) for theme in suite() for name in suite()[theme]
    ]
    assert [(theme, test) for theme, test, _ in rows] == tests
    assert all(len(outcomes) == len(head) and "not run" not in outcomes for *_, outcomes in rows)
