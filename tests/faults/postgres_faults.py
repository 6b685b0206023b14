"""Faults of PostgreSQL: a full disk, an expired account."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import psycopg
from psycopg import sql

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .fault import AT_LEAST_ONCE, Fault, Strike
from .host import Power
from .hosts import USER, PostgresHost
from .site import Site

LASTING_SECONDS = 3.0
"""How long the database refuses."""
KEYS = 16
"""The number of keys of the records that fill the disk, so that each lane has some."""
FILLINGS = ("x" * 1000, "x")
"""The values of these records."""
_FREE_SPACE = "free disk space"
"""What a harvester logs after SQLSTATE 53100."""


class PostgresFault(Fault):
    """A fault that changes PostgreSQL's settings."""

    needs = frozenset({Power.RULES})

    @staticmethod
    def host(site: Site) -> PostgresHost:
        """Returns the site's host, which must be PostgreSQL."""
        assert isinstance(site.host, PostgresHost)
        return site.host


class FillDisk(PostgresFault):
    name = "disk-full"
    title = "no room for the outbox's table (SQLSTATE 53100)"
    intake = False

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def strike(self, site: Site) -> Strike:
        disk = self.host(site).disk
        with self.host(site).administrating() as connection:
            at = time.time()
            # Marks and purges wait here while writers fill the free space in the table's own pages.
            connection.autocommit = False
            connection.execute("SELECT FROM outbox_fence FOR UPDATE")
            with disk.full(self.host(site).database):
                sold = 0
                if disk.means == "tmpfs":
                    sold = _sell_out(site, f"hamster-{next(self._numbers)}")
                last = connection.execute("SELECT max(id) FROM outbox").fetchone()
                connection.rollback()
                if site.delivery == AT_LEAST_ONCE:
                    met = "a harvester meets the full disk"
                    until(lambda: site.has_said(_FREE_SPACE, at), met, 60, pause=0.1)
                else:  # selections write nothing, and purges need no room
                    _wait_until_purged(connection, last)
                time.sleep(LASTING_SECONDS / 2)
                ended_at = time.time()
        return Strike(at, ended_at - at, facts={"means": disk.means, "sold": sold})


class ExpiredPassword(PostgresFault):
    name = "expired-password"
    title = "the harvester's password expires or changes, and its connections are ended"

    changes: ClassVar[tuple[str, ...]] = ("expired", "changed")

    def strike(self, site: Site) -> Strike:
        change = site.chance.choice(self.changes)
        at = time.time()
        with (
            self.host(site).administrating() as connection,
            _locked_out(connection, change, self.host(site).password),
        ):
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [USER]
            )
            until(
                lambda: site.has_said("password authentication failed", at),
                "it is locked out",
                60,
                pause=0.1,
            )
            time.sleep(LASTING_SECONDS)
            ended_at = time.time()
        return Strike(at, ended_at - at, facts={"change": change})


@contextmanager
def _locked_out(connection: psycopg.Connection, change: str, password: str) -> Iterator[None]:
    user = sql.Identifier(USER)
    if change == "expired":
        alter, values = sql.SQL("ALTER ROLE {} VALID UNTIL {}"), ("2001-01-01", "infinity")
    else:
        alter, values = sql.SQL("ALTER ROLE {} PASSWORD {}"), (f"not-{password}", password)
    locked_out, let_in = values
    connection.execute(alter.format(user, locked_out))
    try:
        yield
    finally:
        connection.execute(alter.format(user, let_in))


def _wait_until_purged(connection: psycopg.Connection, last: Sequence[object] | None) -> None:
    """Waits until no row is left up to an id."""

    def purged() -> bool:
        found = connection.execute("SELECT FROM outbox WHERE id <= %s LIMIT 1", last).fetchone()
        connection.rollback()
        return found is None

    until(purged, "harvesters go on while the disk is full", 60, pause=0.1)


def _sell_out(site: Site, key: str) -> int:
    """Sells until not even a small record fits; returns how many records were sold.

    Then the rows at the end of the table are in full pages. They cannot be marked, because a mark writes a
    new version of the row.
    """
    keys = [f"{key}-{number}" for number in range(KEYS)]
    number = 0
    with site.shop.connect() as connection:
        for value in FILLINGS:
            with contextlib.suppress(psycopg.errors.DiskFull):
                while True:
                    _sell_each(site, connection, keys, number + 1, value)
                    number += 1
    return number * len(keys)


def _sell_each(
    site: Site, connection: psycopg.Connection, keys: Sequence[str], number: int, value: str
) -> None:
    at = time.time()
    with connection.transaction():
        for key in keys:
            site.shop.sell(connection, key, number, value)
        site.shop.commits.update(((key, number), at) for key in keys)


POSTGRES_FAULTS = (FillDisk(), ExpiredPassword())
