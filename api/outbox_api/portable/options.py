"""The options that all dialects have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from outbox_api.base.errors import ConfigError
from outbox_api.intake.intake import Intake
from outbox_api.portable.keeping import Keep
from outbox_api.portable.outboxes import TablePattern
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import Tables
from outbox_api.seams.affinity import Origin
from outbox_api.seams.hooks import GIVEN


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableOptions:
    """The options that all dialects have; a plugin's options inherit them.

    Attributes:
        table: The outbox table, optionally with its schema.
        fence_table: The fence table; without a schema it lives beside the outbox. The tables of notes, of
            the lease, of members and of the history have its name with a suffix.
        dead_letter_table: The table of dead letters; without a schema it lives beside the outbox.
        journal_table: The journal; without a schema it lives beside the outbox.
        value_type: What the value column holds, ``text`` or ``bytes``: in the DDL, and as it is in a
            table that exists.
        intake: A table of another layout whose rows are moved into the outbox, or several tables.
        keep: Which delivered records are kept, in a table with the outbox's name and ``_kept``; ``None`` for
            none.
        origin: How rows tell in which cluster they were written, as the affinity says; ``None`` if they do
            not.
        by_day: Whether an outbox that is created has a partition for each day; ``outbox init`` says so, and
            nobody else asks: whether one has them is in the catalogue.
        value_types: What ``value_type`` can be, for text and for bytes.
    """

    value_types: ClassVar[tuple[str, str]] = ("text", "bytes")

    table: str = "outbox"
    fence_table: str = "outbox_fence"
    dead_letter_table: str = "outbox_dead_letters"
    journal_table: str = "outbox_journal"
    value_type: str = "text"
    intake: Intake | tuple[Intake, ...] = ()
    keep: Keep | None = None
    origin: Origin | None = field(default=None, metadata=GIVEN)
    by_day: bool = field(default=False, metadata=GIVEN)

    def __post_init__(self) -> None:
        if self.value_type not in self.value_types:
            raise ConfigError(f"valueType is '{self.value_type}'; it can be {' or '.join(self.value_types)}")
        for name in (self.table, self.fence_table, self.dead_letter_table, self.journal_table):
            self.table_name(name)
        found = set[TableName]()
        for intake in self.intakes:
            table = self.table_name(intake.table)
            if table == self.outbox:
                raise ConfigError(f"intake.table is '{intake.table}', the outbox itself")
            if table in found:
                raise ConfigError(f"several intakes are of table '{intake.table}'; one moves all of its rows")
            found.add(table)

    @property
    def intakes(self) -> tuple[Intake, ...]:
        """The tables whose rows are moved into the outbox."""
        return (self.intake,) if isinstance(self.intake, Intake) else tuple(self.intake)

    @classmethod
    def table_name(cls, text: str) -> TableName:
        """Reads a table's name as the database does.

        Raises:
            ConfigError: It is not a table name.
        """
        return TableName.parse(text)

    @classmethod
    def table_pattern(cls, text: str) -> TablePattern:
        """Reads a pattern of tables' names.

        Raises:
            ConfigError: It is malformed.
        """
        return TablePattern(text, cls.table_name)

    def require_times(self, *names: str, zero: bool = False) -> None:
        """Makes sure that durations are longer than 0 s; ``zero`` permits 0 s.

        Raises:
            ConfigError: One is not.
        """
        for name in names:
            seconds = getattr(self, name)
            if seconds < 0 or not (zero or seconds):
                limit = "it cannot be negative" if zero else "it must be more than 0 s"
                raise ConfigError(f"{name} is {seconds} s; {limit}")

    @property
    def tables(self) -> Tables:
        """The names of all tables of the outbox."""
        return Tables.beside(
            self.fence, outbox=self.outbox, dead_letters=self.dead_letters, journal=self.journal
        )

    @property
    def outbox(self) -> TableName:
        """The outbox table's name."""
        return self.table_name(self.table)

    @property
    def fence(self) -> TableName:
        """The fence table's name, in the outbox's schema unless it names its own."""
        return self.table_name(self.fence_table).within(self.outbox.schema)

    @property
    def dead_letters(self) -> TableName:
        """The name of the table of dead letters, in the outbox's schema unless it names its own."""
        return self.table_name(self.dead_letter_table).within(self.outbox.schema)

    @property
    def journal(self) -> TableName:
        """The journal's name, in the outbox's schema unless it names its own."""
        return self.table_name(self.journal_table).within(self.outbox.schema)

    @property
    def binary(self) -> bool:
        """Whether values are bytes."""
        return self.value_type == self.value_types[1]
