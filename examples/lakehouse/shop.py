"""The application: it changes orders, and stashes what has changed in the same transaction."""

import json
import random
import threading
import time

import psycopg
from outbox_api import Record, Seam, Stasher, find

WRITERS = 2
IN_A_TRANSACTION = 100
CHANGES_PER_ORDER = 10
STEPS = ("placed", "paid", "packed", "shipped", None)
"""The life of an order, again and again; `None` if it is deleted."""
UPSERT = """INSERT INTO orders VALUES (%s, %s, %s, %s)
    ON CONFLICT (order_id) DO UPDATE SET status = excluded.status, cents = excluded.cents"""

stasher = Stasher(dialect="postgres")


class Shop:
    """The application: a table of orders, and the outbox. Its writers change orders in transactions.

    Args:
        data_source: The database.
        changes: How many changes of orders to make.
        rate: How many in a second.
    """

    def __init__(self, data_source: str, changes: int, rate: float) -> None:
        self._data_source = data_source
        self._changes = changes
        self._rate = rate
        self._written = [0] * WRITERS
        self._writers = [
            threading.Thread(target=self._write, args=[each], daemon=True) for each in range(WRITERS)
        ]

    def open(self) -> None:
        """Creates the tables, and starts to take orders."""
        with psycopg.connect(self._data_source) as connection:
            connection.execute(
                "CREATE TABLE orders (order_id TEXT PRIMARY KEY, customer TEXT, status TEXT, cents INT)"
            )
        driver = find(Seam.DIALECT, "postgres")
        driver.create(driver.options(data_source=self._data_source)).create()
        for writer in self._writers:
            writer.start()

    def written(self) -> int:
        """Returns how many changes are committed."""
        return sum(self._written)

    def waiting(self) -> int:
        """Returns how many records are in the outbox."""
        with psycopg.connect(self._data_source) as connection:
            [count] = connection.execute("SELECT count(*) FROM outbox").fetchone() or [0]
            return int(count)

    def writing(self) -> bool:
        """Whether it still takes orders. Raises RuntimeError if it had to end early."""
        alive = any(writer.is_alive() for writer in self._writers)
        if not alive and self.written() < self._changes:
            raise RuntimeError("the application could not write all orders; see the error above")
        return alive

    def orders(self) -> set[tuple[object, ...]]:
        """Returns its own table."""
        with psycopg.connect(self._data_source) as connection:
            return set(connection.execute("SELECT order_id, customer, status, cents FROM orders"))

    def _write(self, writer: int) -> None:
        """Changes orders of its own, so that their changes are committed in their order."""
        chosen = random.Random(writer)
        mine = range(writer, max(self._changes // CHANGES_PER_ORDER, WRITERS), WRITERS)
        steps = dict.fromkeys(mine, -1)
        began, total = time.monotonic(), len(range(writer, self._changes, WRITERS))
        with psycopg.connect(self._data_source) as connection:
            for first in range(0, total, IN_A_TRANSACTION):
                records = []
                for _ in range(min(IN_A_TRANSACTION, total - first)):
                    order = chosen.choice(mine)
                    steps[order] = (steps[order] + 1) % len(STEPS)
                    records.append(
                        self._change(connection, order, STEPS[steps[order]], chosen.randrange(10_000))
                    )
                stasher.stash_many(connection, records)
                connection.commit()
                self._written[writer] += len(records)
                time.sleep(max(0.0, began + (first + len(records)) * WRITERS / self._rate - time.monotonic()))

    @staticmethod
    def _change(connection: psycopg.Connection, order: int, status: str | None, cents: int) -> Record:
        """Changes an order in the application's table, and returns the record that says so."""
        key, customer = f"order-{order}", f"customer-{order % 1000}"
        if status is None:
            connection.execute("DELETE FROM orders WHERE order_id = %s", [key])
            return Record("orders", key, None)
        connection.execute(UPSERT, [key, customer, status, cents])
        return Record("orders", key, json.dumps({"customer": customer, "status": status, "cents": cents}))
