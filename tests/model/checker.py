"""Explores every state that a model can come to, breadth first, so that what it finds is shortest."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)

STUCK = "stuck"
"""The property of a state from which no state of rest can be reached."""


class Model(Protocol[State]):
    """What can happen.

    States are hashable and never change; equal ones are the same state.
    """

    def first(self) -> State:
        """Returns where every history begins."""
        ...

    def steps(self, state: State) -> Iterable[tuple[str, State]]:
        """Returns what may happen next: what it is, in words, and what comes of it."""
        ...

    def wrong(self, state: State) -> str:
        """Returns which property does not hold in a state, empty when all do."""
        ...

    def rest(self, state: State) -> bool:
        """Returns whether what was to be done is done; such a state must stay within reach."""
        ...


@dataclass(frozen=True)
class Found:
    """What an exploration found.

    Attributes:
        states: How many states there are; up to the violation, if there is one.
        transitions: How many steps lead from one to another.
        depth: Steps to the state that is farthest from the first.
        wrong: Which property is violated, empty for none; "stuck" where no state of rest can be reached.
        history: The shortest way to the violation, step by step, in words.
    """

    states: int
    transitions: int
    depth: int
    wrong: str
    history: tuple[str, ...]


def explore(model: Model[State], sought: str = "") -> Found:
    """Visits every state until one violates a property, then looks for states without a way to rest.

    Args:
        model: What to explore.
        sought: The one property whose violation ends the search; beyond other violations it does not look.
    """
    return _Exploration(model).run(sought)


def reachable(model: Model[State]) -> Iterator[State]:
    """Returns every state that a model can come to, breadth first; none behind a violation."""
    found = {model.first()}
    states = list(found)
    for state in states:  # which grow meanwhile
        yield state
        for _, successor in () if model.wrong(state) else model.steps(state):
            if successor not in found:
                found.add(successor)
                states.append(successor)


class _Exploration(Generic[State]):
    """States are known by their numbers, in the order in which they were found."""

    def __init__(self, model: Model[State]) -> None:
        self._model = model
        self._states = [model.first()]
        self._parents = array("q", [-1])
        self._depths = array("q", [0])
        self._edges = array("q")  # the successors of all states, one after the other
        self._ends = array("q")  # where those of each state end

    def run(self, sought: str) -> Found:
        numbers = {self._states[0]: 0}
        for number, state in enumerate(self._states):  # which grow meanwhile
            wrong = self._model.wrong(state)
            if wrong and sought in ("", wrong):
                return self._found(wrong, number)
            for _, successor in () if wrong else self._model.steps(state):
                found = numbers.setdefault(successor, len(numbers))
                if found == len(self._states):
                    self._states.append(successor)
                    self._parents.append(number)
                    self._depths.append(self._depths[number] + 1)
                self._edges.append(found)
            self._ends.append(len(self._edges))
        stuck = self._stuck() if sought in ("", STUCK) else -1
        return self._found("" if stuck < 0 else STUCK, stuck)

    def _stuck(self) -> int:
        """Returns the first state that has no way to rest, -1 for none."""
        # Nothing is explored behind a violation, if another property is sought.
        alive = bytearray(self._model.rest(state) or bool(self._model.wrong(state)) for state in self._states)
        before = -1
        while (now := alive.count(1)) > before:
            before = now
            # Most steps lead to a later state, so a few rounds from back to front will do.
            for number in range(len(alive) - 1, -1, -1):
                if not alive[number]:
                    begin = self._ends[number - 1] if number else 0
                    successors = self._edges[begin : self._ends[number]]
                    alive[number] = any(alive[successor] for successor in successors)
        return alive.find(0)

    def _found(self, wrong: str, culprit: int) -> Found:
        history = tuple(self._history(culprit)) if wrong else ()
        return Found(len(self._states), len(self._edges), self._depths[-1], wrong, history)

    def _history(self, number: int) -> Iterator[str]:
        way = []
        while number >= 0:
            way.append(self._states[number])
            number = self._parents[number]
        for state, successor in pairwise(reversed(way)):
            yield next(words for words, other in self._model.steps(state) if other == successor)
