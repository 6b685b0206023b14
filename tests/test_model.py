"""The model in small: no history breaks a property, every ablation is caught, and the code does the same."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache, partial
from typing import get_args

import pytest
from outbox_api import Found
from outbox_core.delivery.checkpoint import decode, encode
from outbox_core.delivery.commands import Advance, Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge

from .model.ablations import ABLATIONS, BOUNDED, ENDS, GAPS, LATE_END, SCOPES, Property, ablate
from .model.actions import ACTIONS, PREVENTED, Watched, action
from .model.checker import Found as Explored
from .model.checker import explore, reachable
from .model.comparison import Comparison
from .model.probes import PROBES, reached
from .model.protocol import ExactlyOnce
from .model.recovery import RecoveryComparison, Sender, recoveries
from .model.scope import Fault, Rule, Scope
from .model.world import ONCE


@lru_cache
def explored(scope: Scope, off: frozenset[Rule] = frozenset()) -> tuple[Explored, Counter[str]]:
    """Returns what the exploration of a scope found, and how many steps of each kind it has."""
    found = explore(model := Watched(scope, off))
    return found, model.counts


@pytest.mark.parametrize("scope", BOUNDED, ids=lambda scope: scope.name)
def test_no_history_breaks_a_property(scope):
    found, _ = explored(scope)
    assert not found.wrong, "\n".join(found.history)
    assert found.states > 60


def test_every_action_happens_in_small_but_for_those_that_the_rules_prevent():
    happened = {action for scope in BOUNDED for action in explored(scope)[1]}
    assert ACTIONS.keys() - happened == PREVENTED


def test_without_the_rule_on_ends_in_doubt_the_prevented_actions_happen():
    _, counts = explored(LATE_END, frozenset({ENDS}))
    assert counts.keys() >= PREVENTED


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_there_are_states_without_which_the_exploration_would_say_nothing(probe):
    assert reached(probe)


def test_every_property_is_broken_by_some_ablation():
    assert {ablation.breaks for ablation in ABLATIONS} == set(get_args(Property))


def test_a_copy_of_an_end_is_refused_once_the_epoch_has_risen():
    model, refused = ExactlyOnce(LATE_END), 0
    for world in reachable(model):
        for words, after in model.steps(world):
            if copies(world) and action(words) == "opens its producer":
                assert not copies(after)
                refused += 1
    assert refused > 10


def copies(world):
    """Returns the copies of requests to end a transaction that are on their way."""
    return [call for call in world.strays if call.name == "end"]


@pytest.mark.slow
@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.rule)
def test_without_a_rule_a_property_breaks(ablation):
    found = ablate(ablation)
    assert found.wrong == ablation.breaks
    assert len(found.history) > 9


@pytest.mark.slow
def test_a_lost_at_least_once_leader_may_send_what_a_transaction_has_committed():
    [gap] = GAPS
    found = ablate(gap)
    assert found.wrong == "duplicate"
    assert "process 2, lane 0: sends" in found.history[-1]


def test_every_fault_happens_somewhere():
    assert {fault for scope in SCOPES for fault in scope.menu} == set(get_args(Fault))


class Counting:
    """Counts from 0 up to 4 by 1 or 2, and may fall into a pit at 3."""

    def __init__(self, wrong_at=None, pit=False):
        self.wrong_at = wrong_at
        self.pit = pit

    def first(self):
        return 0

    def steps(self, state):
        for by in (1, 2):
            if state + by <= 4 and not (self.pit and state == 3):
                yield f"{state} + {by}", state + by

    def wrong(self, state):
        return "here" if state == self.wrong_at else ""

    def rest(self, state):
        return state == 4


def test_the_checker_visits_each_state_once():
    found = explore(Counting())
    assert (found.states, found.transitions, found.depth, found.wrong) == (5, 7, 2, "")


def test_the_checker_finds_the_shortest_history():
    found = explore(Counting(wrong_at=4))
    assert (found.wrong, found.history) == ("here", ("0 + 2", "2 + 2"))


def test_the_checker_finds_a_state_without_a_way_to_rest():
    found = explore(Counting(pit=True))
    assert (found.wrong, found.history) == ("stuck", ("0 + 1", "1 + 2"))


def run_many():
    """Runs the state machine; returns what it has delivered, locked and parked, and its actions."""
    delivered = locked = parked = 0
    actions = set()
    for seed in range(100):
        comparison = Comparison(seed)
        comparison.run(events=seed)
        assert not comparison.world.wrong
        delivered += comparison.world.log.count(ONCE)
        locked += comparison.locked
        parked += comparison.parked
        actions |= comparison.actions
    return delivered, locked, parked, actions


@pytest.fixture(scope="module")
def machines():
    return run_many()


def test_the_model_can_do_whatever_the_state_machine_decides(machines):
    delivered, locked, parked, _ = machines
    assert delivered > 300, "at least half of the rows"
    assert locked > 20
    assert parked > 20


def forgetful_of_the_checkpoint(command):
    if isinstance(command, Publish):
        return Publish(command.records, encode([], decode(command.checkpoint).attempted))
    return command


def forgetful_of_what_is_pending(command):
    return command._replace(pending=[]) if isinstance(command, Advance) else command


@pytest.mark.slow
@pytest.mark.parametrize("forgetful", [forgetful_of_the_checkpoint, forgetful_of_what_is_pending])
def test_the_comparison_tells_when_the_code_does_what_the_model_cannot(monkeypatch, forgetful):
    for name in ("next_to_publish", "next_for_database"):
        decide = getattr(SelectPublishPurge, name)
        monkeypatch.setattr(
            SelectPublishPurge, name, lambda self, now, decide=decide: forgetful(decide(self, now))
        )
    with pytest.raises(AssertionError):
        run_many()


def recover_all(*, locking=False):
    """Runs the recoveries of some scopes; returns their endings, how many were torn, and their actions."""
    endings: Counter[str] = Counter()
    torn = 0
    actions = set()
    telling = [scope for scope in BOUNDED if "torn" in scope.name or "forgotten" in scope.name]
    for scope in telling:
        for recovery in recoveries(scope, locking=locking):
            endings[recovery.run()] += 1
            torn += recovery.doubt is not None and recovery.doubt.is_torn
            actions |= recovery.actions
    return endings, torn, actions


@pytest.fixture(scope="module")
def recovered():
    return recover_all()


def test_a_recovery_does_what_the_model_does(recovered):
    endings, torn, _ = recovered
    assert endings.keys() == {"opened", "settled", "fenced", "refused"}
    assert endings["settled"] > 100
    assert torn > 100


NOT_RUN = {
    # the broker and other processes
    *("broker shows", "late call", "is fenced by the broker"),
    *("crash", "crash of the database", "waits in vain", "bump on its way", "runs twice"),
    *("timeout", "loss", "tear", "compaction", "forgotten", "grown old"),
    # of the product, but outside of what is compared
    *("is contradicted", "needs a new producer", "end sent twice"),
    *("marks", "sends", "purges what it sent"),
    *PREVENTED,
}
"""The actions that the code takes in no comparison; some give the states from which recoveries begin."""


def test_the_code_takes_all_actions_but_those_that_are_listed(machines, recovered):
    assert ACTIONS.keys() - machines[-1] - recovered[-1] == NOT_RUN


@pytest.mark.slow
def test_a_recovery_does_what_the_model_does_while_rows_are_locked():
    endings, torn, _ = recover_all(locking=True)
    assert endings["locked"] > 30
    assert torn > 100


def as_if_nothing_was_torn(_, records, trace):
    """Asks nobody, and takes all records for published."""
    return Found([each.id for each in records])


def at_the_own_location(attempt, _):
    return attempt()


def without_what_is_locked(publish, records, _):
    return publish(records, encode([]))


def without_the_attempt(advance, fence, batches, *more):
    return advance(fence, batches[:-1], *more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "method", "change"),
    [
        (Sender, "find", as_if_nothing_was_torn),
        (Sender, "attempt", at_the_own_location),
        (Sender, "publish", without_what_is_locked),
        (RecoveryComparison, "advance", without_the_attempt),
    ],
)
def test_the_comparison_tells_when_a_recovery_does_something_else(monkeypatch, of, method, change):
    asks = getattr(of, method)
    monkeypatch.setattr(of, method, lambda self, *asked: change(partial(asks, self), *asked))
    with pytest.raises(AssertionError):
        recover_all(locking=True)
