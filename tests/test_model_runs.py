"""The model of runs in small: no history breaks a promise, and every ablation is caught."""

from __future__ import annotations

from functools import lru_cache
from typing import get_args

import pytest
from outbox_core.delivery.scoreboard import Scoreboard

from .model.checker import Found, explore
from .model.run_ablations import ABLATIONS, BOUNDED, GAPS, SCOPES, Property, ablate_runs, explore_runs
from .model.runs.protocol import Runs
from .model.runs.scope import Fault, Scope
from .model.runs.without import without


class Watched(Runs):
    """The model, and the words of all its steps."""

    def __init__(self, scope):
        super().__init__(scope)
        self.words = set()

    def steps(self, world):
        for words, after in super().steps(world):
            self.words.add(words)
            yield words, after


@lru_cache
def explored(scope: Scope) -> tuple[Found, frozenset[str]]:
    """Returns what the exploration of a scope found, and the words of its steps."""
    with without(frozenset()):
        found = explore(model := Watched(scope))
    return found, frozenset(model.words)


@pytest.mark.parametrize("scope", BOUNDED, ids=lambda scope: scope.name)
def test_no_history_of_runs_breaks_a_promise(scope):
    found, _ = explored(scope)
    assert not found.wrong, "\n".join(found.history)
    assert found.states > 200


SAID = {
    "crash": "crashes",
    "lapse": "lapses",
    "drain": "is told to hand over",
    "refuse": "refuses [2, 3] of a run",
    "park": "is refused for good",
    "unready": "for a moment",
    "timeout": "gives up",
    "lock": "is locked",
    "doubt": "does not reply",
    "restart": "restarts",
}
"""What steps say of each fault."""


def test_every_fault_happens_in_small_but_for_the_one_that_a_rule_prevents():
    words = [each for scope in BOUNDED for each in explored(scope)[1]]
    happened = {fault for fault, said in SAID.items() if any(said in each for each in words)}
    assert {*get_args(Fault)} - happened == {"unready"}
    assert any("writes [2, 3] of a run" in each for each in words), "a request has several records of a key"


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.rule)
def test_without_a_rule_of_runs_a_promise_breaks(ablation):
    found = ablate_runs(ablation)
    assert found.wrong == ablation.breaks


def test_a_late_request_of_a_lost_leader_leaves_a_stale_copy():
    [gap] = GAPS
    found = ablate_runs(gap)
    assert found.wrong == gap.breaks
    assert "a late request writes" in found.history[-1]


def test_an_error_of_the_code_is_found_with_its_history(monkeypatch):
    def follow(*_):
        raise ArithmeticError

    monkeypatch.setattr(Scoreboard, "_follow", follow)
    found = explore_runs(Scope("", (0, 0), 2, 0))
    assert "ArithmeticError" in found.wrong
    assert "hears of [0]," in found.history[-1]


def test_every_fault_of_runs_happens_somewhere():
    assert {fault for scope in SCOPES for fault in scope.menu} == set(get_args(Fault))


def test_every_promise_is_broken_by_some_ablation():
    assert {each.breaks for each in ABLATIONS} == set(get_args(Property))


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.name)
def test_no_history_of_runs_in_a_larger_world_breaks_a_promise(scope):
    assert not explore_runs(scope).wrong
