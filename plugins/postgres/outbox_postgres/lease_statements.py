"""The statements of the lease: a row of the fence says who leads, and a sequence says until when.

A renewal writes the sequence, which PostgreSQL changes in place, and locks the row. Neither makes a version
of a row, so a snapshot that is held open keeps nothing alive (ADR 30). Changes of a sequence are not undone
and are seen at once, so each statement that writes it locks the row first, and reads the sequence afterwards.
"""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from zlib import crc32

from outbox_sdk.portable.columns import LEASE

from outbox_postgres.ddl import literal, sequence_of
from outbox_postgres.layout import Layout

_NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
RELEASED = 1
"""What the sequence says of a lease that was released: a time long ago. It is also its first value."""
NOTHING = 0
"""What the sequence never says."""


class LeaseStatements:
    """The statements for one outbox.

    Parameters are $1, the outbox's name in its fence, $2, the holder, and $3, for how many milliseconds.

    Args:
        layout: The outbox as found.

    Attributes:
        sequence: The sequence.
        look: Reads the holder, for how many milliseconds it took the lease, what the sequence says, and how
            many milliseconds of the lease are left; locks nothing. Takes $1 only.
        make: Makes the row, with nobody as its holder; takes $1 only.
        renew: Prolongs the lease of its holder; returns its number.
        take: Gives the lease to another holder if it has run out, or if the sequence still says $4; returns
            the number.
        release: Ends the lease of its holder, and wakes those who listen; takes $1 and $2.
        listen: Listens for that.
    """

    def __init__(self, layout: Layout) -> None:
        self.sequence = sequence_of(layout.outbox)
        name = literal(str(self.sequence))
        row = f"name = $1 AND lane = {LEASE}"
        until = f"setval({name}::regclass, {_NOW} + $3)"
        channel = f"outbox_lease_{crc32(layout.name.encode()):08x}"
        self.look = f"""
            SELECT lease.holder, lease.token, sequence.last_value, sequence.last_value - {_NOW}
            FROM {layout.fence} AS lease CROSS JOIN {self.sequence} AS sequence WHERE {row}"""
        self.make = f"""
            INSERT INTO {layout.fence} (name, lane, lanes, token, attempt, holder, since)
            VALUES ($1, {LEASE}, 0, 0, -1, '', clock_timestamp()) ON CONFLICT (name, lane) DO NOTHING"""
        own = f"SELECT attempt FROM {layout.fence} WHERE {row} AND holder = $2 FOR NO KEY UPDATE"
        self.renew = f"WITH own AS MATERIALIZED ({own}) SELECT attempt, {until} FROM own"
        # The condition within the inner SELECT has it read the sequence for a row that is locked already.
        self.take = f"""
            WITH locked AS MATERIALIZED (
                SELECT attempt FROM {layout.fence} WHERE {row} FOR NO KEY UPDATE),
            free AS MATERIALIZED (
                SELECT attempt FROM locked
                WHERE (SELECT last_value < {_NOW} OR last_value = $4
                       FROM {self.sequence} WHERE locked.attempt IS NOT NULL))
            UPDATE {layout.fence} AS lease
            SET holder = $2, attempt = free.attempt + 1, token = $3, since = clock_timestamp()
            FROM free WHERE {row} RETURNING lease.attempt, {until}"""
        self.release = f"""
            WITH own AS MATERIALIZED ({own})
            SELECT setval({name}::regclass, {RELEASED}), pg_notify('{channel}', '') FROM own"""
        self.listen = f"LISTEN {channel}"
