"""Writes the tables of docs/tuning.md from results, and all results beside it as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

BEGIN, END = "<!-- begin: bench.tuning -->", "<!-- end: bench.tuning -->"

FEW = 10
"""Figures up to this one are written with a decimal."""
SHOWN = ("in flight",)
"""The tables of the page beside that of links."""
EVEN = ("1 ms", "20 ms", "100 ms")
"""Delays of which the page also has the lines with links of the same delay to database and broker."""
WORK = "cpu µs"
"""The figure that the page leaves out."""
RATE = "/s"
"""The figure that has its ratios beside it."""

Results = dict[str, dict[str, list[dict[str, dict[str, float]]]]]
"""Table → line → for each round, the values of the cell and of its base."""


def write(results: Results, page: Path) -> None:
    """Replaces what is between the marks of a page, and writes all lines beside it."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{tables(results)}{END}{after}")
    with page.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows(results))


def tables(results: Results) -> str:
    """Returns a table for each part that the page has, one line a cell: values, and ratios to its base."""
    shown = {name: lines for name, lines in results.items() if name in SHOWN}
    even = {
        label: rounds
        for label, rounds in results.get("links", {}).items()
        if label.endswith(tuple(f"database {each}, broker {each}" for each in EVEN))
    }
    return "\n".join(_table(name, lines) for name, lines in ({"links": even} | shown).items() if lines)


def rows(results: Results) -> Iterator[Sequence[str]]:
    """Returns a head, and a row for each line of all parts of the matrix."""
    columns = list(dict.fromkeys(each for lines in results.values() for each in _columns(lines)))
    yield ("table", "harvester", *columns)
    for name, lines in results.items():
        for label, rounds in lines.items():
            yield (name, label, *(_cell(rounds, column) for column in columns))


def _table(name: str, lines: Mapping[str, Sequence[Mapping[str, Mapping[str, float]]]]) -> str:
    columns = [each for each in _columns(lines) if each != WORK]
    head = " | ".join(columns)
    written = [f"### {name}", "", f"| harvester | {head} |", f"|---|{'--:|' * len(columns)}"]
    for label, rounds in lines.items():
        cells = " | ".join(_cell(rounds, column) for column in columns)
        written.append(f"| {label} | {cells} |")
    return "\n".join(written) + "\n"


def _columns(lines: Mapping[str, Sequence[Mapping[str, Mapping[str, float]]]]) -> list[str]:
    return list(dict.fromkeys(each for rounds in lines.values() for it in rounds for each in it["it"]))


def _cell(rounds: Sequence[Mapping[str, Mapping[str, float]]], column: str) -> str:
    values = [each["it"][column] for each in rounds if column in each["it"]]
    if not values:
        return ""
    value = median(values)
    shown = f"{value:,.0f}" if value > FEW else f"{value:.1f}"
    ratios = sorted(
        each["it"][column] / each["base"][column]
        for each in rounds
        if each["base"].get(column) and column in each["it"]
    )
    if column != RATE or not ratios or ratios[0] == ratios[-1] == 1:
        return shown
    spread = f", {ratios[0]:.2f} to {ratios[-1]:.2f}" if len(ratios) > 1 else ""
    return f"{shown} ({median(ratios):.2f}{spread})"
