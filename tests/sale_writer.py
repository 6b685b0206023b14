"""A writer of a shop's sales, which continues after the database was down."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any

from outbox_demo.writer import Writer, Written

if TYPE_CHECKING:
    from .shop import Shop

PROMPT_WRITERS, LATE_WRITERS = 2, 2
LATE_SECONDS = (0.2, 1.0)
ROLLBACK_SHARE = 0.15
MOST_RECORDS = 4
"""Sales in one transaction."""
CALM_GLANCE = 0.02
"""Seconds between two looks whether sales go on."""
HELD_SECONDS = 0.01
"""How long a transaction stays open in a database where no other may write meanwhile."""


class SaleWriter(Writer):
    """Writes sales to customers of its own.

    Args:
        shop: The shop.
        customers: Its customers.
        seconds: How long it leaves a transaction open, at least and at most. If transactions wait for one
            another, it spends most of that time between two of them.
        most_records: Sales in one transaction. With more than usual, the first customers have most of them.
        seed: The seed of its random choices.
        ending: Is set when it must stop.
    """

    def __init__(
        self,
        shop: Shop,
        customers: Sequence[str],
        seconds: tuple[float, float],
        *,
        seed: int,
        ending: Event,
        most_records: int = MOST_RECORDS,
    ) -> None:
        super().__init__(f"sales-{seed}", random=Random(seed), rollback_share=ROLLBACK_SHARE, ending=ending)
        self._shop = shop
        self._customers = customers
        self._seconds = seconds
        self._most_records = most_records
        power = 1 if most_records > MOST_RECORDS else 0
        self._weights = [1 / (place + 1) ** power for place in range(len(customers))]
        self._pause = 0.0
        self._numbers = dict.fromkeys(customers, 0)

    def connect(self) -> Any:
        return self._shop.database.connect()

    def write(self, connection: Any) -> Written:
        while self._shop.calm.is_set() and not self._ending.wait(CALM_GLANCE):
            pass
        written, number = [], self.random.randint(1, self._most_records)
        for customer in self.random.choices(self._customers, self._weights, k=number):
            self._numbers[customer] += 1
            written.append((customer, self._numbers[customer]))
        self._shop.sell_many(connection, written)
        return written

    def open_seconds(self) -> float:
        seconds = self.random.uniform(*self._seconds)
        held = seconds if self._shop.database.concurrent else min(seconds, HELD_SECONDS)
        self._pause = seconds - held
        return held

    def pause_seconds(self) -> float:
        return self._pause

    def is_temporary(self, error: Exception) -> bool:
        # The database is down, full or read-only; the table of sales says what was committed.
        return self._shop.database.passing(error)

    def committing(self, written: Written) -> None:
        asked_at = time.time()
        self._shop.commits.update((sale, asked_at) for sale in written)
