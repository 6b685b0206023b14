"""Faults of single rows: one that another session has locked, one that the outbox refuses."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .fault import Fault, Strike
from .host import Power
from .process_faults import TAKEOVER_SECONDS
from .site import Site

FLOW_SECONDS = 60.0
"""Within this time records of other keys flow."""
AGAIN_SECONDS = 120.0
"""Within this time the row is tried again."""
TRIES = 50
"""So many rows may be harvested before one is locked."""
REFUSED = "refused"
"""The value that the outbox refuses."""


class HeldRow(Fault):
    """A row that cannot be moved while the leader is killed; its key waits, and others flow."""

    needs = frozenset({Power.SERVER})
    may_arrive = False
    """Whether the row itself may arrive, as it was marked before it was held."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def strike(self, site: Site) -> Strike:
        number = next(self._numbers)
        key = f"{self.name}-{number}"
        with self.held(site, key) as first:
            for later in 1, 2:
                _sell(site, key, first + later)
            _require_flow(site, f"{self.name}-passer-{number}")
            letter, leader = site.chief()
            site.may_end.add(letter)
            at = leader.kill()
            changed = "a successor leads"
            until(lambda: site.leader() not in (None, leader), changed, TAKEOVER_SECONDS, pause=0.1)
            _require_flow(site, f"{self.name}-successor-{number}")
            early = _arrived(site, key)
        wanted = list(range(1, first + 3))
        until(lambda: set(_arrived(site, key)) >= set(wanted), "the key flows", AGAIN_SECONDS, pause=0.1)
        last = first if self.may_arrive else first - 1
        assert max(early, default=0) <= last, f"of {key}, whose row {first} is held, {early} arrived"
        return Strike(at, site.session, facts={"leader": leader.name, "key": key, "first": first})

    @abstractmethod
    def held(self, site: Site, key: str) -> Any:
        """Sells to a key until its last row cannot be moved; at the end of the block it can be.

        Yields:
            The number of that sale.
        """


class LockedRow(HeldRow):
    name = "locked-row"
    may_arrive = True
    title = "another session locks the earliest row of a key while the leader gets SIGKILL; other keys flow"

    @contextmanager
    def held(self, site: Site, key: str) -> Iterator[int]:
        database, source = site.shop.database, site.shop.database.written
        with closing(database.connect()) as holder:
            for number in range(1, TRIES):
                _sell(site, key, number)
                waiting = database.waiting(holder, key)[:1]
                holder.rollback()  # or MariaDB locks no row that is marked meanwhile
                for row in waiting:
                    lock = f"SELECT * FROM {source.table} WHERE {source.number} = {row[0]} AND {source.waits}"
                    if database.execute(holder, f"{lock} FOR UPDATE").fetchall():
                        yield number
                        holder.rollback()
                        return
                holder.rollback()
        raise AssertionError(f"no row of {key} could be locked before it was harvested")


class RefusedRow(HeldRow):
    name = "refused-row"
    title = (
        "the outbox refuses a row of an intake while the leader gets SIGKILL; other keys flow, then the row "
        "is mended"
    )
    intake = True

    @contextmanager
    def held(self, site: Site, key: str) -> Iterator[int]:
        database, source = site.shop.database, site.shop.database.written
        condition = f"CHECK (kafka_value IS NULL OR kafka_value <> '{REFUSED}')"
        _execute(site, f"ALTER TABLE outbox ADD CONSTRAINT refuses {condition}")
        _sell(site, key, 1, REFUSED)
        with closing(database.connect()) as connection:
            number = database.waiting(connection, key)[0][0]
        yield 1
        if site.intake != "commits":  # of which a changed row is the last
            # By its number: without an index, MySQL would lock all rows.
            _execute(site, f"UPDATE {source.table} SET body = 'mended' WHERE {source.number} = {number}")
        _execute(site, "ALTER TABLE outbox DROP CONSTRAINT refuses")


def _sell(site: Site, key: str, number: int, value: str = "a row") -> None:
    with closing(site.shop.database.connect()) as connection:
        site.shop.sell(connection, key, number, value)
        connection.commit()


def _execute(site: Site, sql: str) -> None:
    with closing(site.shop.database.connect()) as connection:
        site.shop.database.execute(connection, sql)
        connection.commit()


def _require_flow(site: Site, key: str) -> None:
    """Sells to a customer without a writer, and waits until that arrives."""
    _sell(site, key, 1)
    until(lambda: _arrived(site, key), "other keys flow", FLOW_SECONDS, pause=0.1)


def _arrived(site: Site, key: str) -> list[int]:
    return [sequence or 0 for _, name, sequence in site.witness.arrivals if name == key]


ROW_FAULTS = (LockedRow(), RefusedRow())
