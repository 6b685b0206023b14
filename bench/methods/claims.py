"""What the comparison of goharvest, this project's forerunner, says of methods, beside what was counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Claim(NamedTuple):
    """Something it says.

    Attributes:
        method: Of which method.
        says: What, in a few words.
        figure: The anomaly, or the figure of the costs, that answers it.
        expected: Of an anomaly, whether it should be there; of a cost, whether it should be the greater one.
        than: The method whose cost it is compared with; empty for anomalies.
    """

    method: str
    says: str
    figure: str
    expected: bool
    than: str = ""


CLAIMS = (
    Claim("log", "comes in the order of commits, without gaps", "lost", False),
    Claim("log", "comes in the order of commits, without gaps", "reordered", False),
    Claim("trigger", "as change capture, comes in the order of commits", "lost", False),
    Claim("trigger", "burdens the transaction that writes", "stream wal B", True, "nobody"),
    Claim("offset by id", "skips what commits out of the order of its ids", "lost", True),
    Claim("JDBC: incrementing", "the same, by far the most common first attempt", "lost", True),
    Claim("grace period", "loses what takes longer than the grace", "lost", True),
    Claim("grace period", "lags by the grace", "stalled", True),
    Claim("gaps: wait", "loses what comes after the grace", "lost", True),
    Claim("gaps: wait", "stutters at each gap that is not filled soon", "stalled", True),
    Claim("read uncommitted", "delivers what is rolled back", "invented", True),
    Claim("read uncommitted", "loses ids that are drawn early and inserted late", "lost", True),
    Claim("timestamp", "loses records: clocks jump, commits are not in their order", "lost", True),
    Claim("blocking batches", "cannot go wrong", "lost", False),
    Claim("blocking batches", "cannot go wrong", "reordered", False),
    Claim("blocking batches", "is slower than a pipeline", "drain /s", False, "difference in memory"),
    Claim("transaction window", "stalls behind the oldest open transaction", "stalled", True),
    Claim("transaction window", "reads monotonically", "reordered", False),
    Claim("difference in memory", "loses nothing", "lost", False),
    Claim("difference in memory", "keeps the order", "reordered", False),
    Claim("mark-purge/reset", "loses nothing", "lost", False),
    Claim("mark-purge/reset", "keeps the order", "reordered", False),
    Claim(
        "mark-purge/reset", "writes twice, the difference once", "drain wal B", True, "difference in memory"
    ),
)


def answers(results: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Returns each claim: the method, what is said, what was counted or measured, whether both agree."""
    found: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for claim in CLAIMS:
        answer = _measured(results, claim) if claim.than else _counted(results, claim)
        if answer is not None:
            found.setdefault((claim.method, claim.says), []).append(answer)
    return [
        (*of, ", ".join(words for words, _ in each), all(agree for _, agree in each))
        for of, each in found.items()
    ]


def beside(results: Mapping[str, Any]) -> str:
    """Returns the table of the claims that were not borne out, below the number of the others."""
    every = answers(results)
    wrong = [each for each in every if not each[-1]]
    others = f"{len(every) - len(wrong)} of its {len(every)} claims were borne out"
    lines = [f"{others} ([all](methods/claims.csv)), not these:", ""]
    lines += ["| method | claim | found here |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(each[:3])} |" for each in wrong)])


def _counted(results: Mapping[str, Any], claim: Claim) -> tuple[str, bool]:
    found = results["histories"][claim.method]
    count = sum(kind.get(claim.figure, 0) for kind in found["kinds"].values())
    total = found["histories"] * len(found["kinds"])
    return f"{claim.figure} in {count:,} of {total:,}", (count > 0) is claim.expected


def _measured(results: Mapping[str, Any], claim: Claim) -> tuple[str, bool] | None:
    costs = means(results)
    if not {claim.method, claim.than} <= costs.keys():
        return None
    own, other = costs[claim.method][claim.figure], costs[claim.than][claim.figure]
    name, unit = claim.figure.rsplit(" ", 1)
    words = f"{name}: {own:,.0f} {unit}, {claim.than}: {other:,.0f}"
    return words, (own > other) is claim.expected


def means(results: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Returns method → figure → the mean of all rounds that have it."""
    found: dict[str, dict[str, float]] = {}
    for name, rounds in results.get("costs", {}).get("methods", {}).items():
        figures = dict.fromkeys(figure for each in rounds for figure in each)
        values = {figure: [each[figure] for each in rounds if figure in each] for figure in figures}
        found[name] = {figure: sum(each) / len(each) for figure, each in values.items()}
    return found
