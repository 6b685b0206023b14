"""The simulation of an intake in small: fresh histories, every mutant, and repeatability."""

from __future__ import annotations

import secrets
from collections import Counter

import pytest

from .simulation.intake_mutants import MUTANTS
from .simulation.intake_runs import hunt, run
from .simulation.intake_world import KINDS, IntakeWorld

pytestmark = pytest.mark.timeout(600)
"""It computes for as long as the machine takes."""

HISTORIES = 30


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
    counts = sum((run(seed).counts for seed in range(20)), start=Counter())
    assert [
        kind for kind in (*KINDS, "moved") if kind not in ("refuse", "break", "large") and not counts[kind]
    ] == []
    assert counts["refused"]
    assert counts["breaking"]


def test_the_same_seed_makes_the_same_history() -> None:
    worlds = [IntakeWorld(7) for _ in range(2)]
    for world in worlds:
        world.run()
    assert worlds[0].trail == worlds[1].trail
    assert worlds[0].steps == worlds[1].steps
