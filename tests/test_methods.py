"""The smallest history of each anomaly: the method shows it, and this project's harvester does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.methods.catalog import DELIVERIES
from bench.methods.counting import Bench, Prepared, shows
from bench.methods.history import History

RESULTS = json.loads((Path(__file__).parents[1] / "docs" / "methods.json").read_text())["histories"]
SMALLEST: list[tuple[str, str, History]] = [
    (name, anomaly, tuple(smallest["history"]))
    for name, result in RESULTS.items()
    if name not in DELIVERIES
    for anomaly, smallest in result["smallest"].items()
]
HISTORIES = sorted({history for _, _, history in SMALLEST})
REPEATS = 3
"""A run of a key may be repeated in at-least-once delivery; no history has more records of one key."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """The servers."""
    with Bench() as servers:
        yield servers


@pytest.fixture(scope="module")
def methods(bench: Bench) -> dict[str, Prepared]:
    """Methods that are ready, by their names."""
    return {name: bench.prepared(name) for name in {**RESULTS, **DELIVERIES}}


@pytest.mark.parametrize(
    ("name", "anomaly", "history"), SMALLEST, ids=[f"{name}-{it}" for name, it, _ in SMALLEST]
)
def test_the_method_shows_it(methods: dict[str, Prepared], name: str, anomaly: str, history: History) -> None:
    """Each history is the smallest of its anomaly, found by shrinking."""
    assert shows(methods[name], anomaly, history)


@pytest.mark.parametrize("history", HISTORIES, ids=", ".join)
@pytest.mark.parametrize("name", DELIVERIES)
def test_outbox_does_not(methods: dict[str, Prepared], name: str, history: History) -> None:
    """At-least-once delivery may repeat, nothing else; exactly-once delivery does not even that."""
    verdict = methods[name].executed(history)

    assert (verdict.lost, verdict.stuck, verdict.invented, verdict.reordered) == (0, 0, 0, 0)
    assert verdict.repeated <= (REPEATS if name == "outbox at-least-once" else 0)
