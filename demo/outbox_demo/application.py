"""The application: several writers that change orders and stash what happened, in one transaction each."""

import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from threading import Event, Thread
from time import monotonic

import psycopg
from outbox_core.audit import SEQUENCE_HEADER, Ledger
from outbox_sdk import OutboxError, Record
from outbox_sdk.stasher import Stasher

from outbox_demo.options import TABLE, TOPIC

PROMPT_WRITERS = 3
LATE_WRITERS = 4
LATE_SECONDS = (0.5, 2.5)
"""For how long a late writer leaves its transaction open after it has stashed, at least and at most."""
MOST_IN_TRANSACTION = 3
"""Records in one transaction, at most; any number down to one is as likely."""
ROLLBACK_SHARE = 0.1
"""The share of transactions that are rolled back after they have stashed."""

_Stashed = list[tuple[str, int]]

_CREATE = "CREATE TABLE orders (id text PRIMARY KEY, items integer NOT NULL)"
_FILL = "INSERT INTO orders SELECT 'order-' || number, 0 FROM generate_series(1, %s) AS number"
# Whoever changes an order holds its row, so that the changes of one order follow one another, whichever
# writer makes them; orders that somebody else holds are passed over.
_HOLD = "SELECT id FROM orders WHERE id = ANY (%s) FOR UPDATE SKIP LOCKED LIMIT %s"
_CHANGE = "UPDATE orders SET items = items + 1 WHERE id = %s RETURNING items"


class Application:
    """Writes orders until it is stopped, and keeps a ledger of what it knows to be committed.

    Most writers commit at once. Some hold their transactions open: their records have lower ids than many
    that others commit, and are harvested, meanwhile. A share of all transactions is rolled back.

    Args:
        dsn: The database, where the outbox exists already.
        ledger: Receives what was committed, once that is certain.
        rate: Records per second, about.
        keys: How many orders there are.
        seed: Makes the choices of a run those of another one with the same seed.
    """

    def __init__(self, dsn: str, ledger: Ledger, *, rate: float, keys: int, seed: int = 1) -> None:
        self.counts: Counter[str] = Counter()
        """Records by what became of them: ``committed`` (``late`` among them) and ``rolled back``."""
        self._dsn = dsn
        self._ledger = ledger
        self._orders = [f"order-{number}" for number in range(1, keys + 1)]
        # The numbers of one order's records, of which a rolled-back transaction takes some as well; whoever
        # holds the order's row may touch its number.
        self._numbers = dict.fromkeys(self._orders, 0)
        self._stasher = Stasher(TABLE, "postgres")
        self._pause = PROMPT_WRITERS * (1 + MOST_IN_TRANSACTION) / 2 / rate
        self._ending = Event()
        self._error: Exception | None = None
        self._threads = [
            Thread(target=self._run, args=(number, seed), name=f"writer-{number}", daemon=True)
            for number in range(LATE_WRITERS + PROMPT_WRITERS)
        ]

    def start(self) -> None:
        """Creates the table of orders and starts the writers."""
        with psycopg.connect(self._dsn) as connection:
            connection.execute(_CREATE)
            connection.execute(_FILL, (len(self._orders),))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Has every writer finish its transaction, and waits for it."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        """Makes sure that every writer still can write.

        Raises:
            OutboxError: A writer failed, so that what it did last is uncertain.
        """
        if self._error is not None:
            raise OutboxError(f"the application cannot write any more: {self._error}") from self._error

    def _run(self, number: int, seed: int) -> None:
        random = Random(f"{seed} {number}")  # noqa: S311 - chooses orders, keeps no secret
        slow = number < LATE_WRITERS
        try:
            with psycopg.connect(self._dsn) as connection:
                due = monotonic()
                while not self._ending.is_set():
                    self._transact(connection, random, slow)
                    # The pace holds over the whole run: what one transaction lost the next ones make up for.
                    due += self._pause
                    self._ending.wait(0.0 if slow else max(0.0, due - monotonic()))
        except Exception as error:  # noqa: BLE001 - told to whoever checks
            self._error = error

    def _transact(self, connection: psycopg.Connection, random: Random, slow: bool) -> None:
        """Changes a few orders and stashes what happened to them, all of it or nothing."""
        some = random.sample(self._orders, min(len(self._orders), 4 * MOST_IN_TRANSACTION))
        stashed = self._change(connection, some, random.randint(1, MOST_IN_TRANSACTION))
        if slow:
            self._ending.wait(random.uniform(*LATE_SECONDS))
        if random.random() < ROLLBACK_SHARE:
            connection.rollback()
            self.counts["rolled back"] += len(stashed)
            return
        connection.commit()
        self._ledger.write(stashed)
        self.counts["committed"] += len(stashed)
        self.counts["late"] += len(stashed) if slow else 0

    def _change(self, connection: psycopg.Connection, orders: Sequence[str], most: int) -> _Stashed:
        stashed = []
        held = connection.execute(_HOLD, (list(orders), most)).fetchall()
        for (order,) in held:
            ((items,),) = connection.execute(_CHANGE, (order,)).fetchall()
            self._numbers[order] += 1
            number = self._numbers[order]
            value = json.dumps({"order": order, "items": items})
            header = (SEQUENCE_HEADER, str(number))
            self._stasher.stash(connection, Record(TOPIC, order, value, (header,)))
            stashed.append((order, number))
        return stashed
