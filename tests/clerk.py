"""Who sells in a shop, in transactions short and long, some of which are rolled back."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import closing
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .shop import Shop

PROMPT_CLERKS, LATE_CLERKS = 2, 2
LATE_SECONDS = (0.2, 1.0)
ROLLBACK_SHARE = 0.15
MOST_RECORDS = 4
"""In one transaction."""
HELD_SECONDS = 0.01
"""For which a transaction is left open where nobody else may write meanwhile."""


class Clerk(Thread):
    """Sells to customers of its own, in transactions of a few records, of which some are rolled back.

    Args:
        shop: The shop.
        customers: Its customers.
        seconds: For how long it leaves a transaction open, at least and at most. When it is long, the ids
            are lower than those of many that are committed meanwhile. Where transactions wait for one
            another, it spends most of that time between two of them.
        seed: Makes its choices.
        ending: Set when it shall stop.
    """

    def __init__(
        self,
        shop: Shop,
        customers: Sequence[str],
        seconds: tuple[float, float],
        *,
        seed: int,
        ending: Event,
    ) -> None:
        super().__init__(name=f"clerk-{seed}", daemon=True)
        self._shop = shop
        self._customers = customers
        self._seconds = seconds
        self._random = random.Random(seed)
        self._ending = ending
        self._numbers = dict.fromkeys(customers, 0)
        self.error: Exception | None = None
        """What it could not cope with, and ended for."""

    def run(self) -> None:
        try:
            self._sell()
        except Exception as error:  # noqa: BLE001 - raised again where selling ends
            self.error = error

    def _sell(self) -> None:
        database = self._shop.database
        while not self._ending.is_set():
            try:
                with closing(database.connect()) as connection:
                    while not self._ending.is_set():
                        self._transact(connection)
            except Exception as error:
                if not database.passing(error):
                    raise
                # The database is down, full or read-only; the table of sales says what was committed.
                self._ending.wait(0.1)

    def _transact(self, connection: Any) -> None:
        some = self._random.choices(self._customers, k=self._random.randint(1, MOST_RECORDS))
        sales = []
        for customer in some:
            self._numbers[customer] += 1
            number = self._numbers[customer]
            sales.append((customer, number))
            self._shop.sell(connection, customer, number, f"sale {number}")
        pause = self._random.uniform(*self._seconds)
        held = pause if self._shop.database.concurrent else min(pause, HELD_SECONDS)
        self._ending.wait(held)
        if self._random.random() < ROLLBACK_SHARE:
            connection.rollback()
        else:
            asked_at = time.time()
            self._shop.commits.update((sale, asked_at) for sale in sales)
            connection.commit()
        self._ending.wait(pause - held)
