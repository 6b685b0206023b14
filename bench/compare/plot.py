"""Plots of results, as SVG; the only part that needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.compare.results import Measurement, Results, summaries

ROLES = ("database", "broker", "subject", "application")


def plot(files: Sequence[Path], folder: Path) -> list[Path]:
    """Writes a plot for each table that has one and was measured; returns the paths.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib as mpl  # noqa: PLC0415 - needed for plots only, and not installed by default

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "outbox"  # the same results make the same file
    results = Results.read(*files)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draw in {"drain": _drain, "latency": _latency, "backlog": _backlog}.items():
        measured = [each for each in results.of(name) if each.values]
        if measured:
            figure = draw(measured)
            figure.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
            drawn.append(folder / f"{name}.svg")
    return drawn


def _drain(measured: Sequence[Measurement]) -> Any:
    """Draws rates with their extremes, and below them CPU by role, in the first case."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    case = measured[0].case
    taken = [each for each in measured if each.case == case]
    rates = {who: found for (_, who), found in summaries(taken, "/s").items()}
    figure = Figure(figsize=(9, 0.6 * len(rates) + 2))
    left, right = figure.subplots(1, 2, sharey=True)
    names = sorted(rates, key=lambda who: rates[who].median)
    medians = [rates[who].median for who in names]
    spread = [
        [rates[who].median - rates[who].low for who in names],
        [rates[who].high - rates[who].median for who in names],
    ]
    left.barh(names, medians, xerr=spread, color="#4878a8")
    left.set_xlabel("records per second")
    start = [0.0] * len(names)
    for role in ROLES:
        found = {who: each.median for (_, who), each in summaries(taken, f"cpu {role} µs").items()}
        widths = [found.get(who, 0.0) for who in names]
        right.barh(names, widths, left=start, label=role)
        start = [a + b for a, b in zip(start, widths, strict=True)]
    right.set_xlabel("CPU, µs a record")
    right.legend(fontsize="small")
    figure.suptitle(f"Draining a backlog: {case}")
    return figure


def _latency(measured: Sequence[Measurement]) -> Any:
    """Draws p50, p99 and p99.9 of each candidate, a panel for each rate."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    cases = list(dict.fromkeys(each.case for each in measured))
    figure = Figure(figsize=(4 * len(cases) + 1, 4))
    panels = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for panel, case in zip(panels, cases, strict=True):
        names = list(dict.fromkeys(each.candidate for each in measured if each.case == case))
        for figure_name, mark in (("p50 ms", "o"), ("p99 ms", "s"), ("p99.9 ms", "^")):
            found = summaries(list(measured), figure_name)
            panel.plot([found[case, who].median for who in names], names, mark, label=figure_name)
        panel.set_xscale("log")
        panel.set_xlabel("ms from commit to consumer")
        panel.set_title(case)
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize="small")
    return figure


def _backlog(measured: Sequence[Measurement]) -> Any:
    """Draws the time in statements against the rows that wait, a line for each candidate and condition."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    figure = Figure(figsize=(8, 5))
    panel = figure.subplots()
    lines: dict[str, list[tuple[int, float]]] = {}
    for (case, who), found in summaries(list(measured), "statements ms /1000").items():
        rows, _, condition = case.partition(" rows, ")
        lines.setdefault(f"{who}, {condition}", []).append((int(rows.replace(",", "")), found.median))
    for label, points in lines.items():
        panel.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("rows in the outbox")
    panel.set_ylabel("ms in statements for 1,000 records")
    panel.legend(fontsize="x-small")
    panel.grid(alpha=0.3)
    return figure
