"""Measures what an inbox costs a consumer for each record: one with it and one without take turns."""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack
from datetime import timedelta
from itertools import count
from typing import Any

from databases import place
from outbox_api import Seam, find
from outbox_api.application.inbox import Inbox

PORTION = 10_000
TABLES = ("CREATE TABLE effects (customer VARCHAR(20) NOT NULL, amount BIGINT NOT NULL)",)
NUMBERS = count()


def consume(connection: Any, inbox: Inbox | None, records: int, together: int) -> float:
    """Takes records, some in each transaction, with an INSERT for each; returns microseconds a record."""
    cursor, started = connection.cursor(), time.perf_counter()
    for _ in range(records // together):
        for _ in range(together):
            number = next(NUMBERS)
            if inbox is None or inbox.first(connection, f"bench:{number}"):
                cursor.execute("INSERT INTO effects VALUES (%s, %s)", (f"customer-{number % 100}", number))
        connection.commit()
    return (time.perf_counter() - started) / records * 1e6


def compare(connection: Any, inbox: Inbox, records: int, rounds: int, together: int) -> str:
    """Takes turns; returns a line with the medians."""
    without, with_ = [], []
    for _ in range(rounds):
        without.append(consume(connection, None, records, together))
        with_.append(consume(connection, inbox, records, together))
    plain, noted = statistics.median(without), statistics.median(with_)
    return (
        f"{together:4d} in a transaction: without {plain:6.0f}, with {noted:6.0f} us a record;"
        f" {noted - plain:5.0f} more, {noted / plain:.2f} times"
    )


def fill(connection: Any, notes: int) -> None:
    """Notes as many records as a consumer has had that was there before."""
    cursor = connection.cursor()
    for start in range(0, notes, PORTION):
        rows = [("billing", f"earlier:{number}") for number in range(start, min(start + PORTION, notes))]
        cursor.executemany("INSERT INTO outbox_inbox (consumer, record_id) VALUES (%s, %s)", rows)
    connection.commit()


def forget(connection: Any, inbox: Inbox) -> float:
    """Deletes all notes; returns microseconds a note."""
    started, notes = time.perf_counter(), 0
    while deleted := inbox.forget(connection, timedelta(hours=-1)):
        connection.commit()
        notes += deleted
    return (time.perf_counter() - started) / notes * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", nargs="+", default=["postgres", "mysql", "mariadb"])
    parser.add_argument("--records", type=int, default=2_000, help="in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--notes", type=int, default=500_000, help="that are there before")
    arguments = parser.parse_args()
    for database in arguments.databases:
        with ExitStack() as stack:
            driver, source = place(database, stack)
            dialect = find(Seam.DIALECT, driver)
            connection = dialect.create(dialect.options(data_source=source)).stash_connection()
            stack.callback(connection.close)
            inbox = Inbox("billing", driver)
            for statement in (*TABLES, *inbox.ddl()):
                connection.cursor().execute(statement)
            fill(connection, arguments.notes)
            print(f"{database}, with {arguments.notes:,} notes")
            for together in (1, 100):
                print(compare(connection, inbox, arguments.records, arguments.rounds, together), flush=True)
            print(f"forget: {forget(connection, inbox):.1f} us a note", flush=True)


if __name__ == "__main__":
    main()
