"""What can be seen of a harvest from within its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from outbox_core.config.settings import HarvestSettings
from outbox_core.leadership.totals import Totals


class Harvesting(Protocol):
    """A harvest, or one that is started again after errors. Its properties may be read on any thread."""

    @property
    def takes_part(self) -> bool:
        """Whether this process takes part in the election, warm: it leads, or stands by."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        ...

    @property
    def totals(self) -> Totals:
        """What is harvested here."""
        ...


@dataclass(frozen=True, slots=True)
class RunningOutbox:
    """One outbox that this process harvests.

    Attributes:
        settings: Its settings.
        harvest: Its harvest.
    """

    settings: HarvestSettings
    harvest: Harvesting


RunningOutboxes = Callable[[], Sequence[RunningOutbox]]
"""Returns the outboxes that this process harvests now; of templates there may be more later."""
