"""What an application beside Debezium does: it deletes the rows, since Debezium reads the log only."""

from __future__ import annotations

import sys
import time

import psycopg

BATCH = 5000
PAUSE = 0.1
"""Seconds after a statement that found nothing."""

DELETE = (
    "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE id > %s ORDER BY id LIMIT %s) RETURNING id"
)


def main(dsn: str) -> None:
    """Deletes the oldest rows, a batch at a time, until it is killed."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            # Every pass starts at the head, since rows may commit late.
            low = 0
            while deleted := connection.execute(DELETE, (low, BATCH)).fetchall():
                low = max(identifier for (identifier,) in deleted)
            time.sleep(PAUSE)


if __name__ == "__main__":
    main(sys.argv[1])
