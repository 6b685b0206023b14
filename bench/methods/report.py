"""Writes the tables and plots of docs/methods.md from results, and all claims and costs as CSV beside it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.compare.report import replaced
from bench.methods.claims import answers, beside, means
from bench.methods.costs import NOBODY, RATE
from bench.methods.plot import plot

BROKEN_ALIKE = ("trigger", "gaps: look again", "timestamp and grace", "JDBC: ", "read uncommitted")
"""How the names begin of methods whose counts are in the file only, as others of the page break like them."""
SHOWN = ("log", "SKIP LOCKED workers", "mark-purge/reset", "outbox", "Debezium")
"""How the names of the methods begin whose costs the page has."""
ANOMALIES = ("lost", "stuck", "invented", "reordered", "repeated", "stalled")
LISTED = ("stuck", "invented")
"""The anomalies that have no column: nearly all methods show them, or nearly none."""
NONE = "–"  # noqa: RUF001 - a dash

Results = Mapping[str, Any]


def write(results: Results, page: Path) -> None:
    """Replaces what is between the marks of a page, and writes the files beside it."""
    parts = {"counts": counts, "claims": beside}
    parts |= {"costs": costs} if "costs" in results else {}
    parts |= {"connector": connector} if "connector" in results else {}
    text = page.read_text()
    for name, table in parts.items():
        text = replaced(text, name, table(results))
    page.write_text(text)
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    _write(folder / "counts.csv", all_counts(results))
    said = [(*words, "yes" if agree else "no") for *words, agree in answers(results)]
    _write(folder / "claims.csv", [("method", "claim", "found here", "agree"), *said])
    if "costs" in results:
        _write(folder / "costs.csv", all_costs(results))
        plot(means(results), folder)


def _write(path: Path, rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def counts(results: Results) -> str:
    """Returns a table of methods by anomalies: in how many histories; below it, who has the others."""
    heads = [each for each in ANOMALIES if each not in LISTED]
    lines = [f"| method | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    having: dict[str, list[str]] = {each: [] for each in LISTED}
    for name, result in results["histories"].items():
        kinds = result["kinds"]
        sums = {each: sum(kind.get(each, 0) for kind in kinds.values()) for each in ANOMALIES}
        if not name.startswith(BROKEN_ALIKE):
            cells = " | ".join(f"{sums[each]:,}" if sums[each] else NONE for each in heads)
            lines.append(f"| {name} ({result['histories'] * len(kinds):,}) | {cells} |")
        for each in LISTED:
            having[each] += [name] if sums[each] else []
    rest = [f"**{each.capitalize()}** {_of(names, results['histories'])}." for each, names in having.items()]
    return "\n".join([*lines, "", f"{' '.join(rest)} [All methods](methods/counts.csv)."])


def all_counts(results: Results) -> list[list[object]]:
    """Returns a head, and a row for each method: its histories, and how many show each anomaly."""
    rows: list[list[object]] = [["method", "histories", *ANOMALIES]]
    for name, result in results["histories"].items():
        kinds = result["kinds"]
        sums = [sum(kind.get(each, 0) for kind in kinds.values()) for each in ANOMALIES]
        rows.append([name, result["histories"] * len(kinds), *sums])
    return rows


def _of(names: Sequence[str], every: Iterable[str]) -> str:
    others = [name for name in every if name not in names]
    few = len(names) <= len(others)
    return f"is shown by {', '.join(names) or 'none'}" if few else f"is shown by all but {', '.join(others)}"


def costs(results: Results) -> str:
    """Returns the table of some methods' costs, and the plots of all."""
    figures = (
        ("p50 ms", "p50 ms", 1),
        ("p99 ms", "p99 ms", 1),
        ("stream database µs", "database µs", 0),
        ("stream broker µs", "broker µs", 0),
        ("stream subject µs", "harvester µs", 0),
        ("stream wal B", "log B", 0),
        ("transaction ms", "longest transaction ms", 0),
        ("drain /s", "backlog: records/s", 0),
        ("drain wal B", "log B", 0),
    )
    lines = [
        f"| {RATE} records/s | {' | '.join(title for _, title, _ in figures)} |",
        "|---|" + "---|" * len(figures),
    ]
    for name, values in own(results).items():
        if name.startswith(SHOWN):
            cells = [
                f"{values[figure]:,.{digits}f}" if figure in values else NONE for figure, _, digits in figures
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "[All methods and figures](methods/costs.csv), and their plots:", ""]
    plots = (
        "![Latency, by method](methods/latency.svg)",
        "![CPU time of a record, by method](methods/cost.svg)",
    )
    return "\n".join([*lines, *plots])


def all_costs(results: Results) -> list[list[str]]:
    """Returns a head, and a row for each method with all its figures."""
    found = own(results)
    figures = list(dict.fromkeys(figure for values in found.values() for figure in values))
    rows = [
        [name, *(f"{values[each]:.6g}" if each in values else "" for each in figures)]
        for name, values in found.items()
    ]
    return [["method", *figures], *rows]


def own(results: Results) -> dict[str, dict[str, float]]:
    """Returns method → figure → mean; the writers' own cost is taken off that of a record of the stream."""
    found = means(results)
    alone = found.pop(NOBODY)
    return {
        name: {
            figure: value - (alone.get(figure, 0.0) if figure.startswith("stream ") else 0.0)
            for figure, value in values.items()
        }
        for name, values in found.items()
    }


def connector(results: Results) -> str:
    """Returns the table of the real connector beside our form."""
    found = results["connector"]
    lines = ["| what happens | history | mode | our form | the connector |", "|---|---|---|---|---|"]
    for case, each in found["cases"].items():
        for mode, shown in each["modes"].items():
            words = [
                ", ".join(f"{name} {count}" for name, count in shown[of].items()) for of in ("simple", "real")
            ]
            cells = " | ".join(each_ or NONE for each_ in words)
            lines.append(f"| {case} | `{', '.join(each['history'])}` | {mode} | {cells} |")
    versions = f"The connector is commit {found['connector']}, on Kafka Connect {found['connect']}."
    return "\n".join(lines) + f"\n\n{versions}"
