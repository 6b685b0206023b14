"""``python -m outbox_testkit.conformance report.xml …``: prints a table of plugins and themes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from outbox_testkit.conformance.matrix import SUITES, details, read, render, sound, suite


def main() -> int:
    """Prints the table; returns 1 if a test failed, or was skipped for another reason than a capability."""
    parser = argparse.ArgumentParser(
        prog="python -m outbox_testkit.conformance",
        description="Makes a Markdown table of plugins and themes of conformance tests from pytest's reports "
        "(pytest --junit-xml=report.xml).",
    )
    parser.add_argument(
        "--suite", choices=SUITES, default="dialects", help="whose tests; by default those of dialects"
    )
    parser.add_argument("reports", nargs="*", metavar="[NAME=]REPORT", help="a report, and its plugin's name")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="where to write the outcome of each test")
    arguments = parser.parse_args()
    tests = suite(arguments.suite)
    matrix = read(arguments.reports, tests)
    if arguments.csv:
        arguments.csv.write_text(details(matrix, tests))
    print(render(matrix, tests))  # noqa: T201 - the output of the program
    return 0 if sound(matrix) else 1


if __name__ == "__main__":
    sys.exit(main())
