"""What each table beside an outbox must be like, for whoever uses it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outbox_api.portable import TableName
from outbox_api.portable.creation import columns_of
from outbox_api.portable.sources import JOURNAL_COLUMNS
from outbox_api.portable.tables import HARVESTED, NEEDS, Tables

from outbox_postgres.options import quoted


class Fault(NamedTuple):
    """A reason why an outbox cannot be harvested."""

    message: str
    cure: str
    refusal: bool = False


@dataclass(frozen=True, slots=True)
class AuxiliaryTable:
    """The definition of a table beside the outbox.

    Attributes:
        subject: What messages call it.
        option: The option that names it.
        privileges: What a harvester's user must be allowed to do with it; with the journal, an operator's.
        name: The table's name with its schema.
        columns: The columns it must have.
    """

    subject: str
    option: str
    privileges: Sequence[str]
    name: TableName
    columns: Collection[str]

    def column_faults(self, found: Collection[str]) -> Iterator[Fault]:
        """Returns a fault if columns are missing."""
        if missing := sorted(set(self.columns).difference(found)):
            yield Fault(
                f"{self.subject} {self.name} lacks the columns {', '.join(missing)}",
                f"set {self.option} to another name, or drop the table while no harvester runs",
            )

    def absent(self, cure: str) -> Fault:
        """Returns the fault if there is no such table."""
        return Fault(f"there is no {self.subject} {self.name}", cure)


def auxiliary_tables(tables: Tables) -> dict[str, AuxiliaryTable]:
    """Returns the definitions of the tables beside an outbox, by their names in ``Tables``."""
    columns = {**columns_of(tables), tables.journal: JOURNAL_COLUMNS}
    columns[tables.fence] = [*columns[tables.fence], "releases"]
    beside = {name: table for name, table in tables._asdict().items() if name != "outbox"}
    return {name: AuxiliaryTable(*NEEDS[name], table, columns[table]) for name, table in beside.items()}


BESIDE = tuple(name for name in HARVESTED if name != "outbox")
"""The tables that every harvester needs beside the outbox."""


def grant(privileges: Sequence[str], table: TableName, user: str) -> str:
    """Returns the statement that grants ``privileges`` on ``table``."""
    return f"GRANT {', '.join(privileges)} ON {table} TO {quoted(user)}"


def init_and(grant: str) -> str:
    """Returns the cure for what ``outbox init`` creates, which the user may need a grant on."""
    return f"run 'outbox init', and if another user does: {grant}"
