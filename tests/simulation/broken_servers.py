"""What servers must keep for the product to hold: each of these simulated servers breaks one rule.

They are no mutants, as nothing that ships is changed. They show that the product needs each rule, and that
the audit sees what follows when it is broken. The conformance kit and the tests of the Kafka plugin hold the
real statements and producers to these rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from outbox_core.settings import Failures

from .broken_advances import BROKEN_ADVANCES
from .broken_senders import BROKEN_SENDERS
from .broker import Packet, Producer
from .database import Database
from .fencing import Bump
from .mutant import Mutant, mutant
from .operator import Free
from .scenario import Mode
from .statements import Mark, Park, Purge, Reset
from .tables import Row

# --- statements of at-least-once delivery ----------------------------------------------------------------


class UnfencedMark(Mark):
    share_lock = False

    def held(self) -> bool:
        return True


class UnlockedMark(Mark):
    share_lock = False


class AttemptlessMark(Mark):
    def held(self) -> bool:
        row = self.database.fence[self.right.lane]
        return row.token == self.right.token and row.lanes == self.right.lanes


class SkippingMark(Mark):
    def skips(self, row: Row) -> bool:
        return True

    def leaves_out(self, row: Row) -> bool:
        return row.lock is not None or super().leaves_out(row)


class ParkedMark(Mark):
    def leaves_out(self, row: Row) -> bool:
        return row.leader == self.leader_id or row.key in self.excluded


class UnfencedPurge(Purge):
    def held(self) -> bool:
        return True


class UnconditionalPurge(Purge):
    def keeps(self, row: Row) -> bool:
        return True


class VolatilePurge(Purge):
    durable = False


class UnconditionalReset(Reset):
    def keeps(self, row: Row) -> bool:
        return True


class UnfencedPark(Park):
    share_lock = False

    def held(self) -> bool:
        return True


class TaillessPark(Park):
    def rows(self, ids: list[int]) -> list[Row]:
        return super().rows([number for number in ids if number in self.heads])

    def left(self, ids: list[int]) -> list[int]:
        return super().left([number for number in ids if number in self.heads])


class NarrowBump(Bump):
    def covers(self, lane: int) -> bool:
        return lane < self.lanes


class SilentFree(Free):
    def raise_releases(self, database: Database) -> None:
        """Forgets to."""


# --- the broker ------------------------------------------------------------------------------------------


class Hasty(Producer):
    def _depart(self, packet: Packet, delay: float) -> None:
        self._host.after(0.0, self._acknowledge, packet)
        packet.mute = packet.told = True
        super()._depart(packet, delay)


def _breaks(name: str, says: str, invariants: str, budget: int, **parts: Any) -> Mutant:
    return mutant(name, says, invariants, budget, Mode.AT_LEAST_ONCE, first=FIRST.get(name, 1), **parts)


FIRST = {
    "unfenced-purge": 215,
    "volatile-purge": 79,
    "skipping-mark": 9,
    "unconditional-reset": 60,
}
"""Where the search begins, so that it is short."""


SKIPPING_MARK = replace(
    _breaks("skipping-mark", "A mark skips rows that are locked.", "I2", 40, mark=SkippingMark),
    kinds=("elector lies",),
    fixed={
        "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 2, "transactions_per_second": 40.0,
        "faults_per_second": 2.0, "slow": 1.0, "slow_share": 0.15, "lossy": 0.02, "seconds": 8.0,
        "refused_for_good": 0.0,
        "fault_kinds": ("elector lies",), "refused": 0.5,
        "failures": Failures(first_backoff=0.01, longest_backoff=0.05, park_after=5),
    },
)  # fmt: skip
"""A row must be locked by a slow reset of the leader before."""
NARROW_BUMP = replace(
    _breaks("narrow-bump", "A leader raises the token of its own lanes only.", "I2 I5", 40, bump=NarrowBump),
    kinds=("elector lies", "handovers", "late packets"),
    first=5,
    fixed={
        "processes": 2, "lanes": (4, 1), "workers": (4, 0), "keys": 8, "transactions_per_second": 40.0,
        "faults_per_second": 5.0, "seconds": 8.0, "wall_clocks": False, "slow": 0.0, "refused_for_good": 0.0,
        "fault_kinds": ("elector lies", "handovers", "late packets"),
    },
)  # fmt: skip
"""The old leader's other lanes must have workers of their own, or hear at once that it is over."""
UNCONDITIONAL_PURGE = replace(
    _breaks("unconditional-purge", "A purge ignores the leader id.", "I4", 120, purge=UnconditionalPurge),
    kinds=("database crashes", "elector lies", "late network"),
    fixed={
        "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 2, "transactions_per_second": 40.0,
        "faults_per_second": 5.0, "seconds": 8.0, "slow": 0.2, "lossy": 0.0, "wall_clocks": False,
        "refused": 0.0, "refused_for_good": 0.0,
        "fault_kinds": ("database crashes", "elector lies", "late network"),
    },
)  # fmt: skip
"""A purge must meet rows that are marked anew: the database has forgotten marks, or the purge is late."""
UNFENCED_PARK = replace(
    _breaks("unfenced-park", "A park does not look at the fence.", "I4", 20, park=UnfencedPark),
    kinds=("elector lies", "frozen copies"),
    fixed={
        "processes": 2, "lanes": (1, 1), "workers": (1, 1), "keys": 4, "transactions_per_second": 40.0,
        "faults_per_second": 5.0, "seconds": 8.0, "slow": 0.2, "slow_share": 0.15, "lossy": 0.0,
        "wall_clocks": False, "refused": 0.0, "refused_for_good": 0.1,
        "fault_kinds": ("elector lies", "frozen copies"),
        "failures": Failures(first_backoff=0.01, longest_backoff=0.05, park_after=1),
    },
)  # fmt: skip
"""Much must be parked while two believe that they lead."""

ATTEMPTLESS_MARK = replace(
    _breaks("attemptless-mark", "A mark does not check the attempt.", "I4", 40, mark=AttemptlessMark),
    kinds=("frozen copies",),
    fixed={
        "processes": 1, "lanes": (1,), "workers": (1,), "keys": 8, "transactions_per_second": 40.0,
        "faults_per_second": 5.0, "seconds": 8.0, "slow": 0.2, "wall_clocks": False, "refused_for_good": 0.0,
        "fault_kinds": ("frozen copies",),
    },
)  # fmt: skip
"""A mark of a frozen copy must be in the database when the next copy enters the lane."""

SELDOM = frozenset((
    "unfenced-purge", "unconditional-purge", "volatile-purge",
    "unconditional-reset", "narrow-bump",
))  # fmt: skip
"""Those that take many histories; ``make simulate`` searches for them, the tests do not."""

BROKEN_SERVERS: Sequence[Mutant] = (
    _breaks("unfenced-mark", "A mark does not look at the fence.", "I4", 20, mark=UnfencedMark),
    _breaks("unlocked-mark", "A mark checks the fence but does not hold it.", "I4", 40, mark=UnlockedMark),
    ATTEMPTLESS_MARK,
    SKIPPING_MARK,
    _breaks("parked-mark", "A mark takes rows of parked keys.", "parked", 20, mark=ParkedMark),
    _breaks("unfenced-purge", "A purge does not look at the fence.", "I5", 100, purge=UnfencedPurge),
    UNCONDITIONAL_PURGE,
    _breaks("volatile-purge", "A purge does not wait for the disk.", "I2", 100, purge=VolatilePurge),
    _breaks("unconditional-reset", "A reset ignores the leader id.", "I4", 40, reset=UnconditionalReset),
    UNFENCED_PARK,
    _breaks("tailless-park", "A park leaves the leader id in the tail.", "I2 I9", 40, park=TaillessPark),
    NARROW_BUMP,
    _breaks("silent-free", "Freeing a key does not raise the releases.", "I2 I9", 40, free=SilentFree),
    _breaks("hasty", "A record counts as delivered once it is sent.", "I1", 40, producer=Hasty),
    *BROKEN_ADVANCES,
    *BROKEN_SENDERS,
)  # fmt: skip
