"""An outbox of several clusters, as the tests use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from time import monotonic, sleep

from outbox_api import ColumnIs, Origin, Stasher

from outbox_testkit.conformance.under_test import Box, Hand, OutboxUnderTest, plain

COLUMN = "cluster_id"
OWN, OTHER, THIRD = 2, 1, 3
DELAY = 36_000.0
"""Seconds of an age that no row has unless a test makes it old."""
SHORT_DELAY = 2.0
"""Seconds of an age for rows whose times a test cannot change, so that it must wait."""

YEARS = 1e9
"""Seconds of an age that no row has, not even one that was made old."""


def origin(own: int = OWN, existing: int = OTHER, arrival: str = "") -> Origin:
    """Returns how rows of three clusters tell where they were written."""
    return Origin(column=COLUMN, own=own, known=(1, 2, 3), existing=existing, arrival=arrival)


def of(box: Box, rows: Origin) -> OutboxUnderTest:
    """Describes an outbox whose rows tell where they were written."""
    return replace(box.under, options={**box.under.options, "origin": rows})


def created(box: Box, stack: ExitStack, rows: Origin) -> Box:
    """Lets the rows of an outbox tell where they were written; creates it if there is none."""
    found = Box(of(box, rows), stack)
    found.dialect.create()
    return found


def led(box: Box, *conditions: ColumnIs) -> Hand:
    """Creates a new leader that takes rows of these sources."""
    table = box.connect(conditions)
    return Hand(table, table.enter(0, 1, table.bump(1, "test")))


def aged(cluster: int, *ages: float) -> list[ColumnIs]:
    """Returns the conditions that rows are of a cluster, and of an age."""
    return [ColumnIs(COLUMN, cluster, age) for age in ages]


def of_cluster(box: Box, cluster: int, *values: str, keys: int = 3) -> None:
    """Stashes values as a cluster, with the keys k0, k1, … in turn."""
    stasher = Stasher(box.options.table, box.under.driver, cluster=cluster)
    application = box.application()
    stasher.stash_many(application, [plain(f"k{n % keys}", value) for n, value in enumerate(values)])
    application.commit()
    application.close()


_KEYS = {"first": "k0", "second": "k1", "third": "k2"}


def moved(box: Box, column: str, value: str) -> None:
    """Gives a row the latest time that a row has."""
    table = box.options.table
    latest = f"(SELECT latest FROM (SELECT MAX({column}) AS latest FROM {table}) times)"
    key = _KEYS[value]
    application = box.application()
    with closing(application.cursor()) as cursor:
        cursor.execute(
            f"UPDATE {table} SET {column} = {latest} WHERE kafka_key = '{key}'"
            f" AND id < (SELECT id FROM (SELECT MAX(id) AS id FROM {table}) ids)"
        )
    application.commit()


_OLD = (
    "UPDATE {0} SET {1} = TIMESTAMP '2020-01-01 00:00:00'",
    "UPDATE {0} SET {1} = '2020-01-01 00:00:00'",
)
"""What makes rows old, in one database or another."""


def _executed(box: Box, statements: Iterable[str]) -> bool:
    """Executes the first statement that the database knows; returns whether there is one."""
    for statement in statements:
        with (
            closing(box.application()) as application,
            closing(application.cursor()) as cursor,
            suppress(Exception),  # each driver has its own
        ):
            cursor.execute(statement)
            application.commit()
            return True
    return False


def delay_of(box: Box) -> float:
    """Returns the age at which :func:`grow_old` may make rows old in this outbox, in seconds."""
    statements = [statement.format(box.options.table, "create_time") for statement in _OLD]
    return DELAY if _executed(box, [f"{each} WHERE 1 = 0" for each in statements]) else SHORT_DELAY


def grow_old(box: Box, delay: float, column: str = "create_time") -> None:
    """Makes all rows older than ``delay``, which :func:`delay_of` has returned."""
    if delay == SHORT_DELAY:
        sleep(SHORT_DELAY)
        return
    assert _executed(box, [statement.format(box.options.table, column) for statement in _OLD])


_TIMELESS = (
    "ALTER TABLE {} ALTER COLUMN create_time DROP NOT NULL",
    "ALTER TABLE {} MODIFY create_time DATETIME(6) NULL",
    "ALTER TABLE {} MODIFY (create_time NULL)",
    "ALTER TABLE {} ALTER COLUMN create_time DATETIME2(6) NULL",
    "UPDATE {} SET create_time = NULL WHERE kafka_key = '{}'",
    "UPDATE {} SET create_time = 'soon' WHERE kafka_key = '{}'",
)
"""What takes the time from a row, in one database or another."""


def timeless(box: Box, value: str) -> bool:
    """Takes the time from a row as far as the database permits it, and returns whether it does."""
    done = False
    for statement in _TIMELESS:
        with (
            closing(box.application()) as application,
            closing(application.cursor()) as cursor,
            suppress(Exception),  # each driver has its own
        ):
            cursor.execute(statement.format(box.options.table, _KEYS[value]))
            application.commit()
            done = statement.startswith("UPDATE")
        if done:
            return True
    return False


def until_found(look: Callable[[], list[str]]) -> list[str]:
    """Looks until something is found."""
    deadline = monotonic() + 60
    while not (found := look()):
        assert monotonic() < deadline
        sleep(0.05)
    return found
