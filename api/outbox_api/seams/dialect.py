"""What a dialect says of itself; its contract is :class:`outbox_api.portable.PortableDialect`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from outbox_api.base.record import Record


class Capability(StrEnum):
    """What a dialect can do beyond the contract; the conformance suite asks for these, never for a name."""

    BYTES_VALUES = "bytes values"
    CONCURRENT_DDL = "concurrent ddl"
    INTAKE = "intake"
    CONCURRENT_WRITERS = "concurrent writers"
    """Several transactions may hold uncommitted records at once, and marks continue meanwhile."""
    SKIP_LOCKED = "skip locked"
    """Rows that others have locked can be told, and are left to them: no purge, reset or park stops there."""


@dataclass(frozen=True, slots=True)
class Insert:
    """How the stasher writes a record in this dialect.

    Attributes:
        sql: One INSERT. Its parameters are written ``{name}``, and literal braces twice; the stasher
            translates it into the connection's parameter style.
        bind: Makes the parameters of a record, which have the names of the columns; raises ``ValueError``
            for one that the table cannot hold.
    """

    sql: str
    bind: Callable[[Record], Mapping[str, object]]
