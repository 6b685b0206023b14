"""Deliberate bugs in what lanes do in doubt: after lost replies and failures.

They mutate ``outbox_core.delivery`` and ``outbox_core.lanes.record_lane``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from outbox_api import Deliveries, Failure
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.held_keys import HeldKeys
from outbox_core.lanes.record_lane import AtLeastOnceLane, Sending

from .flow_mutants import SMALL, records
from .mutant import Mutant


class BarriersForgotten(MarkPurgeReset):
    """Forgets also the barriers of what is in flight, when it forgets what is not sent."""

    def look(self, now: float, leading: bool = True) -> None:
        if self._remark:
            self.scoreboard._busy.clear()
        super().look(now, leading)


class Unrepeated(MarkPurgeReset):
    """Does not repeat what the database has failed to do."""

    def finishing_unknown(self, now: float) -> None:
        super().finishing_unknown(now)
        self._repeat = False


class TailForgotten(HeldKeys):
    """Parks a key without the rows behind its head that are marked."""

    def ids(self, keys: Iterable[str]) -> list[int]:
        return [number for key in keys for number in self.holds[key].ids[:1]]


class TaillessHold(MarkPurgeReset):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.scoreboard.held = TailForgotten(self.scoreboard.held.policy)


class SentIsDelivered(AtLeastOnceLane):
    """Takes a record for delivered once it is sent."""

    def _next_to_send(self, now: float) -> Sending:
        sending = super()._next_to_send(now)
        for some in sending.records:
            self.machine.delivered(now, some)
        return sending

    def _reported(self, reports: Deliveries, now: float) -> None:
        """Has counted them before."""
        self._sent -= len(reports.delivered) + len(reports.failed)


class PurgesUnmarked(MarkPurgeReset):
    """Purges what failed together with what was delivered."""

    def failed(self, failures: Iterable[Failure]) -> None:
        self.scoreboard.purgeable.extend(failure.record for failure in failures)


DOUBT_MUTANTS: Sequence[Mutant] = (
    records("barriers-forgotten", "A remark forgets the barriers of what is in flight.", "I3 error", SMALL,
            "lossy network, elector cut off", machine=BarriersForgotten),
    records("unrepeated", "A purge or reset that failed is not repeated.", "I9", SMALL, "lossy network",
            machine=Unrepeated),
    records("tail-forgotten", "What waits behind a record that is parked stays marked.", "I2 I9",
            {**SMALL, "refused_for_good": 0.1}, "crashes", machine=TaillessHold),
    records("sent-is-delivered", "A record counts as delivered once it is sent.", "I1 I8", SMALL, "crashes",
            lane=SentIsDelivered),
    records("purges-failed", "What failed is purged with what was delivered.", "I1 I8",
            {**SMALL, "refused": 0.1}, "crashes", machine=PurgesUnmarked),
)  # fmt: skip
