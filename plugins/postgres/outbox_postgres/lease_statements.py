"""The statements of the lease: a row says who leads, and a sequence says until when.

A renewal writes the sequence, which PostgreSQL changes in place, and locks the row. Neither makes a version
of a row, so a snapshot that is held open keeps nothing alive (ADR 30). Changes of a sequence are not undone
and are seen at once, so each statement that writes it locks the row first, and reads the sequence afterwards.
"""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from zlib import crc32

from outbox_postgres.ddl import literal, sequence_of
from outbox_postgres.layout import Layout

_NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
RELEASED = 1
"""What the sequence says of a lease that was released: a time long ago. It is also its first value."""
NOTHING = 0
"""What the sequence never says."""


class LeaseStatements:
    """The statements for one outbox.

    Parameters are $1, the outbox's name, $2, the holder, and $3, for how many milliseconds.

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
        name, lease = literal(str(self.sequence)), layout.tables.lease
        until = f"setval({name}::regclass, {_NOW} + $3)"
        channel = f"outbox_lease_{crc32(layout.name.encode()):08x}"
        self.look = f"""
            SELECT lease.holder, lease.length_ms, sequence.last_value, sequence.last_value - {_NOW}
            FROM {lease} AS lease CROSS JOIN {self.sequence} AS sequence WHERE name = $1"""
        self.make = f"""
            INSERT INTO {lease} (name, term, length_ms, renewed_at)
            VALUES ($1, -1, 0, clock_timestamp()) ON CONFLICT (name) DO NOTHING"""
        own = f"SELECT term FROM {lease} WHERE name = $1 AND holder = $2 FOR NO KEY UPDATE"
        self.renew = f"WITH own AS MATERIALIZED ({own}) SELECT term, {until} FROM own"
        # The condition within the inner SELECT has it read the sequence for a row that is locked already.
        self.take = f"""
            WITH locked AS MATERIALIZED (
                SELECT term FROM {lease} WHERE name = $1 FOR NO KEY UPDATE),
            free AS MATERIALIZED (
                SELECT term FROM locked
                WHERE (SELECT last_value < {_NOW} OR last_value = $4
                       FROM {self.sequence} WHERE locked.term IS NOT NULL))
            UPDATE {lease} AS lease
            SET holder = $2, term = free.term + 1, length_ms = $3, renewed_at = clock_timestamp()
            FROM free WHERE name = $1 RETURNING lease.term, {until}"""
        self.release = f"""
            WITH own AS MATERIALIZED ({own})
            SELECT setval({name}::regclass, {RELEASED}), pg_notify('{channel}', '') FROM own"""
        self.listen = f"LISTEN {channel}"
