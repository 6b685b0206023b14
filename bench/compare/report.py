"""Markdown tables of results, and the page that has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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

COST = (
    "cpu µs",
    "cpu database µs",
    "cpu broker µs",
    "cpu subject µs",
    "wal B",
    "syncs /1000",
    "statements /1000",
)
LOAD = ("cpu %", "cpu database %", "cpu broker %", "cpu subject %", "statements /s")
OTHERS: Mapping[str, Sequence[str]] = {
    "drain": ("cold /s", *COST, "memory MiB"),
    "lanes": ("cold /s", *COST, "memory MiB"),
    "latency": ("p99 ms", "p99.9 ms", "max ms", "missing", "repeats", "out of order", *LOAD),
    "recovery": ("start s", "backlog /s", "cpu s", "missing", "repeats"),
    "backlog": ("/s", "cpu database µs", "wal B", "statements /1000"),
    "claims": ("affinity", "parked", "dead rows", "snapshot"),
    "parked": ("statements ms /1000", *COST),
    "snapshot": ("/s at the start", "/s at the end", *(f"p50 ms, quarter {n}" for n in (1, 2, 3, 4))),
    "idle": (
        "cpu database %",
        "cpu broker %",
        "python %",
        "java %",
        "other %",
        "statements /s",
        "memory MiB",
    ),
    "start": ("ready s",),
    "memory": ("application MiB", "records"),
    "writers": ("p50 ms", "p99 ms", *LOAD),
}
"""Table → the figures that follow: medians."""

RATED_AGAINST = ("debezium", "nobody")
"""The first of these that was measured is what the first figure is divided by."""
UNRATED = ("backlog", "claims", "parked", "snapshot")
"""Tables whose candidates are compared with themselves, from case to case."""


def report(files: Sequence[Path], into: Path | None) -> str:
    """Returns the tables of files with results.

    Args:
        files: The files.
        into: A Markdown page. What stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->`` is
            replaced by the table of that name, and by its plot if there is one in the folder that is named
            like the page; ``conditions`` are the machine and the versions.
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
    return "\n\n".join(f"## {name}\n\n{text}" for name, text in parts.items())


def replaced(page: str, name: str, text: str) -> str:
    """Returns a page with ``text`` between the marks of that name, if it has them."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)


def conditions(results: Results) -> str:
    """Returns a list of the runs: when, with which command, on what."""
    lines = []
    for date, found in results.conditions.items():
        shown = {
            name: value for name, value in found.items() if name not in {"command", "versions"} and value
        }
        versions: dict[str, str] = {}
        for name, version in found.get("versions", {}).items():
            family = name.partition("/")[0]
            versions["outbox" if family.endswith("-once") else family] = version
        told = ", ".join(f"{name} {value}" for name, value in (*shown.items(), *versions.items()))
        lines.append(f"- {date}: `{found['command']}`. {told}.")
    return "\n".join(lines)


def table(name: str, measurements: Sequence[Measurement]) -> str:
    """Returns one table: cases and candidates down, figures across; below it the failures."""
    first, taken = FIRST[name], list(measurements)
    main = summaries(taken, first)
    others = {figure: summaries(taken, figure) for figure in OTHERS[name]}
    others = {figure: found for figure, found in others.items() if found}
    rounds = max((each.rounds for each in main.values()), default=0)
    rated = () if name in UNRATED else RATED_AGAINST
    reference = next((each for each in rated if any(who == each for _, who in main)), None)
    heads = [
        "",
        "",
        f"{first} (lowest to highest of {rounds})",
        *([f"of {reference}"] if reference else []),
        *others,
    ]
    lines = [_row(heads), _row(["---", "---", *["---:"] * (len(heads) - 2)])]
    last = ""
    for (case, candidate), found in main.items():
        cells = [case if case != last else "", f"`{candidate}`", _spread(found)]
        if reference:
            against = main.get((case, reference))
            cells.append(f"{found.median / against.median:.2f}" if against and against.median else "")
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
