"""The application: several writers that change orders and stash what happened, in one transaction each."""

import json
from collections import Counter
from random import Random
from threading import Event
from time import monotonic
from typing import Any

import psycopg
from outbox_api import OutboxError, Record
from outbox_api.application.stasher import Stasher
from outbox_audit import SEQUENCE_HEADER, Ledger

from outbox_demo.options import TABLE, TOPIC
from outbox_demo.writer import Writer, Written

PROMPT_WRITERS = 3
LATE_WRITERS = 4
LATE_SECONDS = (0.5, 2.5)
"""How long a late writer leaves its transaction open after it has stashed, at least and at most."""
MOST_IN_TRANSACTION = 3
"""Records in one transaction, at most; each number from 1 on is equally likely."""
ROLLBACK_SHARE = 0.1
"""The share of transactions that are rolled back after they have stashed."""

_CREATE = "CREATE TABLE orders (id text PRIMARY KEY, items integer NOT NULL)"
_FILL = "INSERT INTO orders SELECT 'order-' || number, 0 FROM generate_series(1, %s) AS number"
# A writer locks the rows of the orders that it changes, so that the changes of one order follow one another,
# whichever writer makes them. It skips orders that another writer has locked.
_HOLD = "SELECT id FROM orders WHERE id = ANY (%s) FOR UPDATE SKIP LOCKED LIMIT %s"
_CHANGE = "UPDATE orders SET items = items + 1 WHERE id = %s RETURNING items"


class Application:
    """Writes orders until it is stopped, and records in a ledger what it knows to be committed.

    Most writers commit at once. Some leave their transactions open: their records have lower ids than many
    that others commit, and are harvested, meanwhile. A share of all transactions is rolled back.

    Args:
        dsn: The database; its outbox exists already.
        ledger: Receives what was committed, after the commit is confirmed.
        rate: Records per second, approximately.
        keys: The number of orders.
        seed: Makes the choices of a run repeatable.
    """

    def __init__(self, dsn: str, ledger: Ledger, *, rate: float, keys: int, seed: int = 1) -> None:
        self.counts: Counter[str] = Counter()
        """Records by what became of them: ``committed`` (``late`` among them) and ``rolled back``."""
        self._dsn = dsn
        # Each record of an order has a number, also one that is rolled back; a row lock protects it.
        self._numbers = {f"order-{number}": 0 for number in range(1, keys + 1)}
        self._ending = Event()
        interval = PROMPT_WRITERS * (1 + MOST_IN_TRANSACTION) / 2 / rate
        self._writers = [
            _OrderWriter(
                dsn,
                ledger,
                self._numbers,
                self.counts,
                interval=None if number < LATE_WRITERS else interval,
                name=f"writer-{number}",
                random=Random(f"{seed} {number}"),  # noqa: S311 - chooses orders, keeps no secret
                rollback_share=ROLLBACK_SHARE,
                ending=self._ending,
            )
            for number in range(LATE_WRITERS + PROMPT_WRITERS)
        ]

    def start(self) -> None:
        """Creates the table of orders and starts the writers."""
        with psycopg.connect(self._dsn) as connection:
            connection.execute(_CREATE)
            connection.execute(_FILL, (len(self._numbers),))
        for writer in self._writers:
            writer.start()

    def stop(self) -> None:
        """Has every writer finish its transaction, and waits for it."""
        self._ending.set()
        for writer in self._writers:
            writer.join()

    def check(self) -> None:
        """Makes sure that every writer can still write.

        Raises:
            OutboxError: A writer failed; the outcome of its last transaction is unknown.
        """
        for writer in self._writers:
            if writer.error is not None:
                raise OutboxError(f"the application cannot write: {writer.error}") from writer.error


class _OrderWriter(Writer):
    """Changes orders, and stashes a record for each change.

    Args:
        dsn: The database.
        ledger: Receives what was committed.
        numbers: Order → the number of its latest record; shared by all writers.
        counts: Counts records by what became of them; shared by all writers.
        interval: Seconds between the starts of two transactions on average, or ``None`` for a late writer.
        thread: Arguments of :class:`Writer`.
    """

    def __init__(
        self,
        dsn: str,
        ledger: Ledger,
        numbers: dict[str, int],
        counts: Counter[str],
        *,
        interval: float | None,
        **thread: Any,
    ) -> None:
        super().__init__(**thread)
        self._dsn = dsn
        self._ledger = ledger
        self._numbers = numbers
        self._counts = counts
        self._interval = interval
        self._due = monotonic()
        self._stasher = Stasher(TABLE, "postgres")

    def connect(self) -> psycopg.Connection:
        """Connects to PostgreSQL."""
        self._due = monotonic()
        return psycopg.connect(self._dsn)

    def write(self, connection: psycopg.Connection) -> Written:
        """Changes a few orders and stashes what happened to them."""
        some = self.random.sample(list(self._numbers), min(len(self._numbers), 4 * MOST_IN_TRANSACTION))
        most = self.random.randint(1, MOST_IN_TRANSACTION)
        written = []
        for (order,) in connection.execute(_HOLD, (some, most)).fetchall():
            ((items,),) = connection.execute(_CHANGE, (order,)).fetchall()
            self._numbers[order] += 1
            number = self._numbers[order]
            value = json.dumps({"order": order, "items": items})
            self._stasher.stash(connection, Record(TOPIC, order, value, ((SEQUENCE_HEADER, str(number)),)))
            written.append((order, number))
        return written

    def open_seconds(self) -> float:
        """Leaves the transaction open if this is a late writer."""
        return self.random.uniform(*LATE_SECONDS) if self._interval is None else 0.0

    def pause_seconds(self) -> float:
        """Keeps the rate over the whole run: later transactions make up for a slow one."""
        if self._interval is None:
            return 0.0
        self._due += self._interval
        return max(0.0, self._due - monotonic())

    def committed(self, written: Written) -> None:
        """Records what is committed."""
        self._ledger.write(written)
        self._counts["committed"] += len(written)
        self._counts["late"] += len(written) if self._interval is None else 0

    def rolled_back(self, written: Written) -> None:
        """Counts what is rolled back."""
        self._counts["rolled back"] += len(written)
