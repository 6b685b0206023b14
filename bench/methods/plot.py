"""Plots of the costs, as SVG; the only part that needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.methods.costs import NOBODY, RATE, ROLES

Means = Mapping[str, Mapping[str, float]]


def plot(costs: Means, folder: Path) -> None:
    """Writes ``latency.svg`` and ``cost.svg``.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib as mpl  # noqa: PLC0415 - needed for plots only, and not installed by default

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "outbox"  # the same results make the same file
    folder.mkdir(exist_ok=True)
    for name, figure in {"latency": _latency(costs), "cost": _cost(costs)}.items():
        figure.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})


def _latency(costs: Means) -> Any:
    """Draws p50 and p99 of each method."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    names = [name for name, values in costs.items() if "p50 ms" in values and name != NOBODY][::-1]
    figure = Figure(figsize=(8, 0.3 * len(names) + 1))
    panel = figure.subplots()
    for share, mark in (("p50 ms", "o"), ("p99 ms", "s")):
        panel.plot([costs[name][share] for name in names], names, mark, label=share)
    panel.set_xscale("log")
    for axis in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
        axis("{x:g}")
    panel.set_xlabel(f"ms from commit to consumer, {RATE} records/s")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
    return figure


def _cost(costs: Means) -> Any:
    """Draws the CPU time of a record, by who spends it: in the stream, and in the drain of a backlog."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    names = [name for name in costs if name != NOBODY][::-1]
    figure = Figure(figsize=(10, 0.3 * len(names) + 1))
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (what, title) in zip(
        panels, (("stream", f"{RATE} records/s"), ("drain", "a backlog")), strict=True
    ):
        start = [0.0] * len(names)
        for role in ROLES:
            figure_ = f"{what} {role} µs"
            alone = costs[NOBODY].get(figure_, 0.0)
            widths = [max(0.0, costs[name].get(figure_, alone) - alone) for name in names]
            panel.barh(names, widths, left=start, label="harvester" if role == "subject" else role)
            start = [a + b for a, b in zip(start, widths, strict=True)]
        panel.set_xlabel(f"CPU, µs a record: {title}")
    panels[0].legend(fontsize="small")
    return figure
