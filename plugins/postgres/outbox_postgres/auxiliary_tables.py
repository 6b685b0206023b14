"""The tables that the dialect creates beside an outbox: its fence, its dead letters and its journal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from outbox_sdk.portable import TableName
from outbox_sdk.portable.columns import DEAD_LETTER_COLUMNS, FENCE_COLUMNS, JOURNAL_COLUMNS

from outbox_postgres.ddl import FENCE_ADDITIONS, dead_letters_ddl, fence_ddl, journal_ddl
from outbox_postgres.fault import Fault
from outbox_postgres.names import quoted


@dataclass(frozen=True, slots=True)
class AuxiliaryTable:
    """The definition of a table beside the outbox.

    Attributes:
        subject: What messages call it.
        option: The option that names it.
        name: The table's name with its schema.
        ddl: What creates it.
        columns: The columns it must have.
        privileges: What a harvester's user must be allowed to do with it; with the journal, an operator's.
        additions: Column → type, for those that a table made by an earlier version may lack.
    """

    subject: str
    option: str
    name: TableName
    ddl: str
    columns: frozenset[str]
    privileges: Sequence[str]
    additions: Mapping[str, str] = field(default_factory=dict)

    def upgrade(self, found: Collection[str]) -> str | None:
        """Returns what adds the columns that a table made by an earlier version lacks.

        ``None`` if there is nothing to add, or if other columns are missing, too. Idempotent, and safe while
        processes of that version run: they name the columns that they use.
        """
        missing = sorted(self.columns.difference(found))
        if not missing or not self.additions.keys() >= set(missing):
            return None
        added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column} {self.additions[column]}" for column in missing)
        return f"ALTER TABLE {self.name} {added}"

    def column_faults(self, found: Collection[str]) -> Iterator[Fault]:
        """Returns a fault if columns are missing."""
        missing = sorted(self.columns.difference(found))
        if self.upgrade(found):
            yield Fault(
                f"{self.subject} {self.name} was made by an earlier version and lacks {', '.join(missing)}",
                "run 'outbox migrate'",
            )
        elif missing:
            yield Fault(
                f"{self.subject} {self.name} lacks the columns {', '.join(missing)}",
                f"set {self.option} to another name, or drop the table while no harvester runs",
            )

    def absent(self, cure: str) -> Fault:
        """Returns the fault if there is no such table."""
        return Fault(f"there is no {self.subject} {self.name}", cure)


def auxiliary_tables(fence: TableName, dead_letters: TableName) -> tuple[AuxiliaryTable, AuxiliaryTable]:
    """Returns the definitions of the tables beside an outbox that a harvester needs."""
    return (
        AuxiliaryTable(
            "fence table",
            "fenceTable",
            fence,
            fence_ddl(fence),
            frozenset({*FENCE_COLUMNS, *FENCE_ADDITIONS}),
            ("SELECT", "INSERT", "UPDATE"),
            FENCE_ADDITIONS,
        ),
        AuxiliaryTable(
            "dead-letter table",
            "deadLetterTable",
            dead_letters,
            dead_letters_ddl(dead_letters),
            frozenset(DEAD_LETTER_COLUMNS),
            ("SELECT", "INSERT", "UPDATE", "DELETE"),
        ),
    )


def journal_table(journal: TableName) -> AuxiliaryTable:
    """Returns the definition of a journal, which harvesters do not need."""
    return AuxiliaryTable(
        "journal table",
        "journalTable",
        journal,
        journal_ddl(journal),
        frozenset(JOURNAL_COLUMNS),
        ("SELECT", "INSERT", "UPDATE"),
    )


def grant(privileges: Sequence[str], table: TableName, user: str) -> str:
    """Returns the statement that grants ``privileges`` on ``table``."""
    return f"GRANT {', '.join(privileges)} ON {table} TO {quoted(user)}"


def init_and(grant: str) -> str:
    """Returns the cure for what ``outbox init`` creates, which the user may need a grant on."""
    return f"run 'outbox init', and if another user does: {grant}"
