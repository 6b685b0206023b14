"""The simulation of several clusters in small: fresh histories, every mutant, and repeatability."""

from __future__ import annotations

import secrets
from collections import Counter

import pytest

from .simulation.cluster_mutants import MUTANTS
from .simulation.cluster_runs import hunt, run
from .simulation.cluster_world import ClusterWorld

pytestmark = pytest.mark.timeout(600)
"""It computes for as long as the machine takes."""

HISTORIES = 8


def test_fresh_histories_break_no_invariant() -> None:
    first = secrets.randbelow(1 << 40)
    for seed in range(first, first + HISTORIES):
        history = run(seed)
        assert not history.invariant, history.message


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught_by_its_invariant(name: str) -> None:
    assert hunt(name) is not None


def test_histories_do_what_they_are_about() -> None:
    counts = sum((run(seed).counts for seed in range(6)), start=Counter())
    for what in ("delivered", "taken over", "taken over deliberately", "losses"):
        assert counts[what] > 0, what


def test_the_same_seed_makes_the_same_history() -> None:
    worlds = [ClusterWorld(7) for _ in range(2)]
    for world in worlds:
        world.run()
    assert worlds[0].trail.entries == worlds[1].trail.entries
    assert worlds[0].steps == worlds[1].steps
