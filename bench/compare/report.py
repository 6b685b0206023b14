"""Tables of results: a few figures in Markdown, for a page; all of them as CSV, beside it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.compare.results import Measurement, Results, Summary, summaries

FIRST = {
    "drain": "/s",
    "lanes": "/s",
    "latency": "p50 ms",
    "recovery": "recovery s",
    "backlog": "statements ms /1000",
    "claims": "fresh",
    "parked": "/s",
    "snapshot": "end / start",
    "idle": "cpu %",
    "start": "first delivery s",
    "memory": "subject MiB",
    "writers": "commits /s",
}
"""Table → the figure that comes first, with its extremes."""

OTHERS: Mapping[str, Sequence[str]] = {
    "drain": ("cpu µs", "wal B", "binlog B"),
    "lanes": ("cpu µs", "memory MiB"),
    "latency": ("p99 ms", "max ms", "cpu %"),
    "recovery": ("live p50 ms", "live p99 ms", "cpu s"),
    "backlog": ("/s", "cpu database µs"),
    "claims": ("affinity", "parked", "dead rows", "snapshot"),
    "parked": ("statements ms /1000", "cpu database µs"),
    "snapshot": ("/s at the start", "/s at the end", "p50 ms, quarter 1", "p50 ms, quarter 4"),
    "idle": ("cpu database %", "statements /s", "memory MiB"),
    "start": (),
    "memory": (),
    "writers": ("p99 ms", "cpu %"),
}
"""Table → the figures that follow on the page: medians."""


def report(files: Sequence[Path], into: Path | None) -> str:
    """Returns the tables of files with results.

    Args:
        files: The files.
        into: A Markdown page. What stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->`` is
            replaced by the table of that name, and by its plot if there is one in the folder that is named
            like the page; ``conditions`` are the machine and the versions. Into that folder go all figures
            and what distinguishes the runs, as CSV.
    """
    results = Results.read(*files)
    parts = {"conditions": conditions(results)}
    parts |= {name: table(name, results.of(name)) for name in FIRST if results.of(name)}
    if into is not None:
        page = into.read_text()
        for name, text in parts.items():
            plot = Path(into.stem, f"{name}.svg")
            image = f"\n\n![{name}]({plot.as_posix()})" if (into.parent / plot).exists() else ""
            page = replaced(page, name, text + image)
        into.write_text(page)
        folder = into.with_suffix("")
        folder.mkdir(exist_ok=True)
        _write(folder / "figures.csv", figures(results))
        _write(folder / "runs.csv", runs(results))
    return "\n\n".join(f"## {name}\n\n{text}" for name, text in parts.items())


def replaced(page: str, name: str, text: str) -> str:
    """Returns a page with ``text`` between the marks of that name, if it has them."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)


def conditions(results: Results) -> str:
    """Returns what all runs had in common."""
    runs = _runs(results)
    common = ", ".join(f"{name} {value}" for name, value in _common(runs.values()).items())
    return f"{len(runs)} runs, {min(runs)} to {max(runs)}: {common}."


def runs(results: Results) -> list[list[str]]:
    """Returns a head, and each run's date and what it did not have in common with all others."""
    runs = _runs(results)
    names = dict.fromkeys(name for found in runs.values() for name in found)
    others = [name for name in names if name not in _common(runs.values())]
    rows = [[date, *(found.get(name, "") for name in others)] for date, found in runs.items()]
    return [["date", *others], *rows]


def figures(results: Results) -> list[tuple[object, ...]]:
    """Returns a head, and a row for each figure of each candidate in each case."""
    rows: list[tuple[object, ...]] = [
        ("table", "case", "candidate", "figure", "median", "lowest", "highest", "rounds")
    ]
    for name in FIRST:
        taken = results.of(name)
        for figure in dict.fromkeys(figure for each in taken for figure in each.values):
            for (case, candidate), found in summaries(taken, figure).items():
                numbers = map(repr, (found.median, found.low, found.high))
                rows.append((name, case, candidate, figure, *numbers, found.rounds))
    return rows


def _write(path: Path, rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def _runs(results: Results) -> dict[str, dict[str, str]]:
    runs = {}
    for date, found in results.conditions.items():
        runs[date] = {name: str(value) for name, value in found.items() if name != "versions" and value}
        for name, version in found.get("versions", {}).items():
            family = name.partition("/")[0]
            runs[date]["outbox" if family.endswith("-once") else family] = version
    return runs


def _common(runs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    values: dict[str, set[str]] = {}
    for found in runs:
        for name, value in found.items():
            values.setdefault(name, set()).add(value)
    return {name: min(found) for name, found in values.items() if len(found) == 1}


def table(name: str, measurements: Sequence[Measurement]) -> str:
    """Returns one table: cases and candidates down, figures across; below it the failures."""
    first, taken = FIRST[name], list(measurements)
    main = summaries(taken, first)
    others = {figure: summaries(taken, figure) for figure in OTHERS[name]}
    others = {figure: found for figure, found in others.items() if found}
    rounds = max((each.rounds for each in main.values()), default=0)
    heads = [
        "case",
        "candidate",
        first if rounds == 1 else f"{first} (lowest to highest of {rounds})",
        *others,
    ]
    lines = [_row(heads), "|---|---|" + "--:|" * (len(heads) - 2)]
    last = ""
    for (case, candidate), found in main.items():
        cells = [case if case != last else "", f"`{candidate}`", _spread(found)]
        cells += [
            number(each[case, candidate].median) if (case, candidate) in each else ""
            for each in others.values()
        ]
        lines.append(_row(cells))
        last = case
    return "\n".join(lines) + failures(taken)


def failures(measurements: Sequence[Measurement]) -> str:
    """Returns a list of what failed, or nothing."""
    found: dict[str, int] = {}
    for each in measurements:
        if each.failure:
            told = each.failure.strip().splitlines()[0].rstrip(":")
            line = f"- {each.case}: `{each.candidate}`: {told}"
            found[line] = found.get(line, 0) + 1
    lines = [f"{line} ({times} times)" if times > 1 else line for line, times in found.items()]
    return "\n\nNot measured:\n\n" + "\n".join(lines) if lines else ""


def number(value: float) -> str:
    """Returns a number with three digits, or all of them if it has more before the point."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004 - three digits
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.4f}"  # noqa: PLR2004 - no exponents


def _spread(found: Summary) -> str:
    if found.rounds == 1:
        return number(found.median)
    return f"{number(found.median)} ({number(found.low)} to {number(found.high)})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
