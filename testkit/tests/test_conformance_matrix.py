"""The table of databases and tests says what the reports say."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from outbox_testkit.conformance.__main__ import main
from outbox_testkit.conformance.matrix import suite

DIALECTS = Path(__file__).parents[2] / "docs" / "dialects.md"
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
    """Runs the program; returns its exit code and the rows of its table by their first cells."""
    monkeypatch.setattr(sys, "argv", ["conformance", *arguments])
    code = main()
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in capsys.readouterr().out.splitlines()]
    return code, {first: rest for first, *rest in rows}


def test_every_test_has_a_row_and_every_database_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = report(tmp_path / "one.xml", "TestOne", **{LANES: (WRITERS, WRITERS), MARK: (WRITERS, "")})
    two = f"Two 9.1={report(tmp_path / 'two.xml', 'TestTwo')}"
    code, rows = printed(capsys, monkeypatch, one, two, "--not-run", "Three")
    assert code == 0
    assert rows[""] == ["One", "Two 9.1", "Three"]
    assert rows["marks the earliest rows in order"] == ["passed", "passed", "not run here"]
    lanes = rows["each key belongs to one lane and stays there"]
    assert lanes == ["skipped: concurrent writers", "passed", "not run here"]
    count = len(ALL)
    assert rows["**sum**"] == [
        f"{count - 1} passed, 1 skipped", f"{count} passed", f"{count} not run here"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        ("<failure />", "**failed**"),
        ("<error />", "**failed**"),
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
    assert rows["**sum**"] == [f"{len(names)} passed"]


def test_a_class_of_a_few_themes_has_no_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "few.xml"
    path.write_text(f'<testsuite><testcase classname="x.TestFew" name="{MARK}" /></testsuite>')
    assert printed(capsys, monkeypatch, str(path))[1][""] == []


def test_the_table_in_the_documents_has_the_themes_of_the_suite() -> None:
    """Otherwise it is to be made anew, as the README of the testkit says."""
    table = DIALECTS.read_text("utf-8").partition("## What each passes")[2]
    themes = re.findall(r"^\| \*\*(.+?)\*\* \|", table, re.MULTILINE)
    assert themes == [*suite(), "sum"]
