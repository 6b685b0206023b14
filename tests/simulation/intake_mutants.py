"""Deliberate bugs where rows of another table are moved; each breaks one of the invariants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox_api.portable.held_keys import HeldKeys
from outbox_api.portable.moving import Mover

from .intake_world import KINDS, Parts


@dataclass(frozen=True)
class Mutant:
    """One deliberate bug; see :class:`tests.simulation.cluster_mutants.Mutant`."""

    name: str
    says: str
    invariants: str
    parts: Parts
    kinds: Sequence[str] = KINDS
    fixed: Mapping[str, Any] = field(default_factory=dict)
    budget: int = 60


def _unfenced(on: Any, token: int) -> None:
    del on, token


def _unlocked(on: Any, token: int) -> None:
    """Compares the token, and does not hold what a bump holds."""
    if on.session.fetch(on.sql.tokens)[0][1] != token:
        raise SystemExit


class _WithKeys(Mover):
    keys: type[HeldKeys]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._keys = self.keys(self._clock)


class ForgetsHeld(_WithKeys):
    class keys(HeldKeys):  # noqa: N801 - stands for an attribute
        def hold(self, *arguments: Any, **named: Any) -> None:
            """Holds nothing back."""


class HeldTooEarly(_WithKeys):
    """Holds keys back though the transaction fails, in which earlier rows of theirs were to be moved."""

    class keys(HeldKeys):  # noqa: N801 - as above
        def free(self, intake: Any, rows: Any) -> Any:
            free, locked = super().free(intake, rows)
            for row, number, said in locked:
                self.hold(row, number, said, locked=True)
            return free, []


class PassesChanged(_WithKeys):
    class keys(HeldKeys):  # noqa: N801 - as above
        def free(self, *arguments: Any) -> Any:
            found = super().free(*arguments)
            self._changed.clear()
            return found


class Drops(Mover):
    """Forgets what a failed portion has taken off the list."""

    def failed(self, error: Any) -> None:
        for _ in self._under_way:
            if self._list:
                self._list.popleft()
        super().failed(error)


class Unconfirmed(Mover):
    """Does not look whether it still talks to the primary."""

    def _confirm(self, intake: Any, hold: Any) -> None:
        """Confirms nothing."""


class NeverAgain(_WithKeys):
    class keys(HeldKeys):  # noqa: N801 - as above
        def hold(self, *arguments: Any, **named: Any) -> None:
            super().hold(*arguments, **named)
            for held in self._held.values():
                held.due = float("inf")


class OldSizes(_WithKeys):
    """Tries rows again as the first scan has listed them."""

    class keys(HeldKeys):  # noqa: N801 - as above
        def hold(self, *arguments: Any, **named: Any) -> None:
            super().hold(*arguments, **named)
            for held in self._held.values():
                held.locked = True


class Unbounded(Mover):
    def _portion(self, intake: Any, max_bytes: int) -> Any:
        rows = super()._portion(intake, max_bytes)
        while self._list and len(rows) < self._most and not self._keys.is_behind(self._list[0]):
            rows.append(self._list.popleft())
        return rows


def _collect(*mutants: Mutant) -> Mapping[str, Mutant]:
    return {mutant.name: mutant for mutant in mutants}


_LEADERS = ("suspend", "rivals", "kill")

MUTANTS = _collect(
    Mutant("unfenced-intake", "Rows move whatever the fence says", "fence", Parts(hold=_unfenced), _LEADERS),
    Mutant("unheld-fence", "The fence is compared, not held", "fence", Parts(hold=_unlocked), _LEADERS),
    Mutant("forgets-held", "A row that is held back holds no key", "order", Parts(mover=ForgetsHeld)),
    Mutant(
        "held-too-early", "A key is held by a later row than its first", "order", Parts(mover=HeldTooEarly),
        fixed={"kinds": ("lock", "commits", "cancelled"), "keys": 2, "pause": 0.2, "rate": 20.0}, budget=120,
    ),
    Mutant("passes-changed", "Rows pass one that was changed meanwhile", "order", Parts(mover=PassesChanged)),
    Mutant("drops-portions", "What a failed portion held is forgotten", "order", Parts(mover=Drops)),
    Mutant(
        "unconfirmed", "A former primary without rows is believed", "waits", Parts(mover=Unconfirmed),
        fixed={"kinds": ("switch",), "pause": 20.0},
    ),
    Mutant("never-again", "A row that was held back is not tried again", "waits", Parts(mover=NeverAgain)),
    Mutant("old-sizes", "A row that was corrected counts as it was", "waits", Parts(mover=OldSizes)),
    Mutant("unbounded-portion", "A portion has no bound in bytes", "bounded", Parts(mover=Unbounded)),
)  # fmt: skip
"""Name → mutant."""
