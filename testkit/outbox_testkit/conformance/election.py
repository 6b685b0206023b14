"""Competing processes, and the order of what happens to them."""

from __future__ import annotations

import math
import queue
import time
from itertools import pairwise
from typing import Any

from outbox_api.election import elapsed

from outbox_testkit.conformance.contender import Contender, ElectorUnderTest, Reported


class Election:
    """The contenders of one election."""

    def __init__(self, under: ElectorUnderTest) -> None:
        """Begins without a contender.

        Args:
            under: The elector.
        """
        self._under = under
        self._new: queue.Queue[Reported] = queue.Queue()
        self._ahead: list[Reported] = []
        """What was told, and neither returned nor passed over yet."""
        self.session = under.session
        self.told: list[Reported] = []
        self.contenders: list[Contender] = []

    def enter(self, count: int = 1, *, drain: float = 0.0, options: Any = None) -> list[Contender]:
        """Starts processes, and waits until they take part.

        Args:
            count: How many.
            drain: For how many seconds a hand-over drains.
            options: Other options than those of the elector under test.
        """
        driver, options = self._under.driver, options or self._under.options
        entered = [Contender(driver, options, self._new, drain) for _ in range(count)]
        self.contenders += entered
        deadline = elapsed() + 120
        while {told.contender for told in self.told if told.what == "started"} < set(self.contenders):
            self._receive(deadline)
        return entered

    def hear(self, what: str, timeout: float, contender: Contender | None = None) -> Reported:
        """Returns the next event of that name that was not returned before; passes over those before it.

        What counts is when processes say that events happened: each is read by a thread of its own, so that
        an event may be received before an earlier one of another process.
        """
        deadline = elapsed() + timeout
        while True:
            for told in sorted(self._ahead, key=lambda each: each.at):
                if told.what == what and contender in (None, told.contender):
                    self._ahead = [each for each in self._ahead if each.at > told.at]
                    return told
            self._receive(deadline, what)

    def hear_all(self, seconds: float) -> list[str]:
        """Returns what candidates are told in the next seconds, and what nobody has asked for yet."""
        time.sleep(seconds)
        while not self._new.empty():
            self._receive(math.inf)
        names = [told.what for told in self._ahead if told.what in _MAY_FOLLOW]
        self._ahead = []
        return names

    def close(self) -> None:
        """Ends all processes."""
        for contender in self.contenders:
            contender.close()

    def assert_orderly(self) -> None:
        """Asserts that nobody was told what cannot be, and that no two led at once.

        Who is killed leads no more. The lease of a frozen process runs out, but it cannot say so before it
        goes on; so for frozen ones only the order of their events counts.
        """
        self.hear_all(0)
        for contender in self.contenders:
            story = [told.what for told in self.told if told.contender is contender]
            story = [what for what in story if what in _MAY_FOLLOW]
            for earlier, later in pairwise(["", *story]):
                assert later in _MAY_FOLLOW[earlier], story
        judged = [contender for contender in self.contenders if not contender.was_frozen]
        terms = sorted(term for contender in judged for term in self._terms(contender))
        for (_, end), (begin, _) in pairwise(terms):
            assert end <= begin, f"two led at once: {terms}"

    def _terms(self, contender: Contender) -> list[tuple[float, float]]:
        """Returns from when to when the contender has led."""
        terms: list[tuple[float, float]] = []
        since: float | None = None
        for told in self.told:
            if told.contender is contender and told.what == "acquired":
                since = told.at
            elif told.contender is contender and told.what in ("revoked", "fenced") and since is not None:
                terms.append((since, told.at))
                since = None
        return terms if since is None else [*terms, (since, contender.killed_at)]

    def _receive(self, deadline: float, what: str = "an event") -> None:
        try:
            told = self._new.get(timeout=min(max(0.001, deadline - elapsed()), 600))
        except queue.Empty:
            raise AssertionError(f"{what} expected, told were {[told.what for told in self.told]}") from None
        self.told.append(told)
        self._ahead.append(told)


_MAY_FOLLOW = {
    "": {"acquired", "failed"},
    "acquired": {"revoking", "fenced"},
    "revoking": {"revoked"},
    "revoked": {"acquired", "failed"},
    "fenced": {"acquired", "failed"},
    "failed": set(),
}
"""What a contender may be told after what."""
