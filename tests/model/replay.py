"""Checks that a trace is a history of the model: it must be able to do what lanes ask and are answered.

A call is carried out at some time between its begin and its end, so a trace may be many histories. All of
them are followed: the states in which the model may be, and in each the calls that are yet to be carried out.
If no state is left, the trace is none of the model's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .answers import Steps
from .faults import FAULTS
from .follow import Follow
from .scope import Fault
from .traces import INNER, NEVER, Asked, Place
from .world import World

_LEFT = 1.0
"""A call without an answer is that of a process that has ended, if others began so many seconds later."""
_TOLD = 12
"""How many steps are told before what is wrong."""
_ENDS, _DIES, _BEGINS = range(3)


class State(NamedTuple):
    """A state of the model, and the calls, by their numbers, that are yet to be carried out."""

    world: World
    pending: frozenset[int] = frozenset()


class History(NamedTuple):
    """How a state was reached: the last step, and when it was seen; those before; how many left no sign."""

    words: str = ""
    at: float = 0.0
    before: History | None = None
    unseen: int = 0

    def steps(self) -> list[tuple[float, str]]:
        """Returns the times and words of all steps."""
        found: list[tuple[float, str]] = []
        last = self
        while last.before is not None:
            found.append((last.at, last.words))
            last = last.before
        return found[::-1]


After = tuple[str, State, int]
"""What happens, in words; what comes of it; and what it costs if it has left no sign."""


class NotOfTheModel(AssertionError):  # noqa: N818 - it names what a test has found
    """A trace that the model does not permit.

    Attributes:
        at: The time from which on it does not, by the trace's clock.
    """

    def __init__(self, words: str, at: float) -> None:
        super().__init__(words)
        self.at = at


class Replay:
    """Follows one lane, and the rows of one key.

    Args:
        calls: The calls that concern the lane, in the order of their begins.
        key: The key.
        menu: What may have happened to transactions whose end was not answered.
    """

    def __init__(self, calls: Sequence[Asked], key: str, menu: frozenset[Fault] = frozenset()) -> None:
        self._calls = calls
        self._menu = menu
        self._model = Follow(calls, key, menu)
        self._states = {State(self._model.first()): History()}
        self._within = dict(_within(calls))
        self._retried = set(_retried(calls, self._within))
        self._repeated = set(_repeated(calls))
        self._out: defaultdict[Place, set[int]] = defaultdict(set)
        self._orphans: set[int] = set()
        self._now = 0.0

    def run(self) -> History:
        """Returns a history with the fewest steps that have left no sign.

        Raises:
            NotOfTheModel: There is none.
        """
        for at, kind, number in sorted(self._moments()):
            self._now = at
            call = self._calls[number]
            if self._is_nobodys(number):
                continue
            self._close()
            before = self._states
            (self._end, self._die, self._begin)[kind](number, call)
            if not self._states:
                what = ("it ends", "its process dies", "it begins")[kind]
                raise NotOfTheModel(_told(before, call, what), at)
        return min(self._states.values(), key=lambda path: path.unseen)

    def _moments(self) -> Iterator[tuple[float, int, int]]:
        latest = max((call.begins for call in self._calls), default=0.0)
        heard: defaultdict[int, float] = defaultdict(float)
        dead: dict[int, int] = {}
        for number, call in enumerate(self._calls):
            yield call.begins, _BEGINS, number
            heard[call.who] = max(heard[call.who], call.begins, call.ends if call.ends != NEVER else 0.0)
            if call.ends != NEVER:
                yield call.ends, _ENDS, number
            elif call.begins < latest - _LEFT:
                dead[call.who] = number
        for who, number in dead.items():
            others = (call.begins for call in self._calls if call.who != who and call.begins > heard[who])
            yield min(others, default=latest), _DIES, number

    def _is_nobodys(self, number: int) -> bool:
        """Returns whether a call tells nothing, nobody waits for it any more, or it is a part of a step."""
        if number in self._repeated:
            return True
        if self._calls[number].do in INNER and number not in self._within:
            return True
        return number in self._orphans or self._within.get(number) in self._orphans

    # --- states -------------------------------------------------------------------------------------

    def _each(self, follow: Callable[[State], Iterable[After]]) -> None:
        """Replaces all states by what follows from them."""
        found: dict[State, History] = {}
        for state, path in self._states.items():
            self._add(found, path, follow(state))
        self._states = found

    def _add(self, found: dict[State, History], path: History, following: Iterable[After]) -> list[State]:
        new = []
        for words, after, cost in following:
            state = after._replace(world=self._model.tidy(after.world))
            if self._model.wrong(state.world):
                continue
            reached = History(words, self._now, path, path.unseen + cost) if words else path
            if state not in found or found[state].unseen > reached.unseen:
                new.append(state)
                found[state] = reached
        return new

    def _close(self, faults: frozenset[Fault] = frozenset()) -> None:
        """Adds the states in which some of what is on its way is carried out, in any order."""
        found = dict(self._states)
        queue = list(found)
        while queue:
            state = queue.pop()
            queue += self._add(found, found[state], self._carried_out(state, faults))
        self._states = found

    def _carried_out(self, state: State, faults: frozenset[Fault]) -> Iterator[After]:
        world = state.world
        for number in state.pending:
            call = self._calls[number]
            if not call.failed or call.lost or call.do == "publish":
                if call.do == "abort" and self._within[number] in state.pending:
                    unsent = self._model.aborted_unsent(world, call)
                    yield "", State(unsent, state.pending - {number}), 0  # before anything was written
                if call.do == "publish":
                    for begun in self._model.begun(world, call):
                        yield "", state._replace(world=begun), 0  # what is asked next may name its rows
                for words, after in self._model.carry_out(world, call, again=number in self._retried):
                    yield words, State(after, state.pending - {number}), 0
        for words, after in self._model.late(world):
            yield words, state._replace(world=after), 1
        for fault in faults:
            for words, after in FAULTS[fault](self._model.lanes, world):
                yield words, state._replace(world=after), 3

    def _alone(self, state: State, steps: Steps) -> Iterator[After]:
        """Yields steps after which nobody waits for calls that were abandoned."""
        for words, after in steps:
            yield words, State(after, state.pending - self._orphans), 0

    def _abandon(self, call: Asked, *, whole: bool = False) -> None:
        """Nobody waits for the calls of a lane that are out, or of all lanes of its process."""
        whole = whole or call.lane is None or call.lost
        for place in list(self._out):
            if place == call.place or (whole and place[0] == call.who):
                self._orphans |= self._out.pop(place)

    # --- what begins --------------------------------------------------------------------------------

    def _begin(self, number: int, call: Asked) -> None:
        if call.do in ("bump", "enter"):
            self._abandon(call)
            self._each(lambda state: self._alone(state, self._model.anew(state.world, call)))
        self._out[call.place].add(number)
        if call.do == "begin":
            return
        if call.do == "commit":
            out = self._within[number]
            self._each(lambda state: () if out in state.pending else (("", state, 0),))
        self._each(
            lambda state: (
                (words, State(after, state.pending | {number}), 0)
                for words, after in self._model.ask(state.world, call)
            )
        )

    # --- what ends ----------------------------------------------------------------------------------

    def _end(self, number: int, call: Asked) -> None:
        self._out[call.place].discard(number)
        if call.do == "begin" or (call.do in INNER and call.failed):
            return  # the call to publish tells
        if call.failed and not call.lost:
            self._fail(number, call)
        elif call.do == "publish" and call.answer and call.answer["failed"]:
            self._each(lambda state: self._refused(state, number, call))
        else:
            self._each(lambda state: () if number in state.pending else (("", state, 0),))
        if call.lost:
            self._abandon(call)
            self._each(lambda state: self._alone(state, (("", state.world),)))

    def _refused(self, state: State, number: int, call: Asked) -> Iterator[After]:
        """Yields the state behind a call to publish that was refused, maybe before anything was sent."""
        unsent = number in state.pending
        for world in self._model.dropped(state.world, call) if unsent else (state.world,):
            yield "", State(world, state.pending - {number}), 0

    def _fail(self, number: int, call: Asked) -> None:
        if call.do == "publish":
            self._close(self._menu)
        settles = any(self._model.settles(state.world, call) for state in self._states)
        self._abandon(call, whole=settles)
        gone = {number}
        self._each(
            lambda state: self._alone(
                state._replace(pending=state.pending - gone), self._model.in_vain(state.world, call)
            )
        )

    def _die(self, _: int, call: Asked) -> None:
        self._close(self._menu)
        self._abandon(call, whole=True)

        def dead(state: State) -> Iterator[After]:
            words = f"process {call.who + 1} crashes" if state.world.processes[call.who].token else ""
            return self._alone(state, ((words, self._model.over(state.world, call.who)),))

        self._each(dead)


def _within(calls: Sequence[Asked]) -> Iterator[tuple[int, int]]:
    """Yields each call of a producer that is a part of one to publish rows, and that one."""
    out: dict[Place, int] = {}
    for number, call in enumerate(calls):
        if call.do in ("publish", "freshen", "open"):
            out[call.place] = number
        elif call.do in INNER and call.place in out and calls[out[call.place]].do == "publish":
            yield number, out[call.place]


def _repeated(calls: Sequence[Asked]) -> Iterator[int]:
    """Yields the idle calls of a lane behind which another one follows, which tells the same of the fence."""
    idle: dict[Place, int] = {}
    for number, call in enumerate(calls):
        if call.do == "advance":
            before = idle.pop(call.place, None)
            if call.idle:
                idle[call.place] = number
                if before is not None:
                    yield before


def _retried(calls: Sequence[Asked], within: Mapping[int, int]) -> Iterator[int]:
    """Yields the aborts after which the same call to publish begins once more."""
    aborted: dict[int, int] = {}
    for number, out in within.items():
        call = calls[number]
        if call.do == "begin" and not call.failed and out in aborted:
            yield aborted.pop(out)
        elif call.do == "abort":
            aborted[out] = number


def _told(states: dict[State, History], call: Asked, what: str) -> str:
    history = min(states.values(), key=lambda history: history.unseen)
    steps = "\n".join(words for _, words in history.steps()[-_TOLD:])
    lanes = {str(process.lanes) for state in states for process in state.world.processes if process.lanes}
    return f"{what}: {call}\nbehind:\n{steps}\nin {len(states)} states:\n" + "\n".join(sorted(lanes))
