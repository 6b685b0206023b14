"""Statements about rows that are chosen by their ids.

Such a statement is a value, not text: each database chooses rows by a list of ids in its own way. The session
knows how the ids are sent (as numbers, as an array, as one parameter), the idiom how they are compared.
"""
# ruff: noqa: S608 - tables come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelectByIds:
    """A query for rows of one table by their ids.

    Attributes:
        columns: What it returns.
        table: The table, quoted, with its hints.
        condition: What else must hold for a row; empty for nothing. Parameters are written ``{name}``.
        suffix: What stands at the end: an order, or a lock.
        id_column: The column that holds the ids, quoted if necessary.
    """

    columns: str
    table: str
    condition: str = ""
    suffix: str = ""
    id_column: str = "id"

    def sql(self, ids: str) -> str:
        """Returns the statement; ``ids`` stands between the parentheses of ``IN``."""
        condition = f" AND {self.condition}" if self.condition else ""
        chosen = f"{self.id_column} IN ({ids})"
        return f"SELECT {self.columns} FROM {self.table} WHERE {chosen}{condition}{self.suffix}"


@dataclass(frozen=True, slots=True)
class ChangeByIds:
    """An UPDATE or a DELETE of rows of one table by their ids.

    Attributes:
        table: The table, quoted.
        assignments: What an UPDATE sets; empty for a DELETE.
        condition: What else must hold for a row; empty for nothing. Parameters are written ``{name}``.
        id_column: The column that holds the ids, quoted if necessary.
        index: The index that finds the rows, quoted if necessary; empty leaves the choice to the database.
            Applications insert into such a table meanwhile, so the statement must lock no other rows.
        copy: What keeps the rows before: an INSERT … SELECT up to its condition; empty for nothing.
        ranged: Whether the index finds ranges of ids only, so that a look for each single one costs as much.
    """

    table: str
    assignments: str = ""
    condition: str = ""
    id_column: str = "id"
    index: str = ""
    copy: str = ""
    ranged: bool = False

    def where(self, chosen: str) -> str:
        """Returns what stands behind ``WHERE``; ``chosen`` is the condition that chooses the rows."""
        return f"{chosen} AND {self.condition}" if self.condition else chosen

    def copied(self, chosen: str) -> str:
        """Returns the statement that keeps the rows of a condition, in the order of their ids."""
        return f"{self.copy} AND {self.where(chosen)} ORDER BY {self.id_column}"

    def within(self, ids: str) -> str:
        """Returns the condition that a row is listed; ``ids`` stands between the parentheses of ``IN``."""
        if self.ranged:
            within = f"{self.id_column} BETWEEN LEAST({ids}) AND GREATEST({ids})"
            return f"{within} AND {self.id_column} + 0 IN ({ids})"
        return f"{self.id_column} IN ({ids})"

    def sql(self, ids: str) -> str:
        """Returns the statement for a list of ids in standard SQL, without regard to ``index``."""
        return self.sql_of(self.within(ids))

    def sql_of(self, chosen: str) -> str:
        """Returns the statement for the rows of a condition, as :meth:`sql`."""
        where = self.where(chosen)
        if self.assignments:
            return f"UPDATE {self.table} SET {self.assignments} WHERE {where}"
        return f"DELETE FROM {self.table} WHERE {where}"


def within_runs(runs: int) -> str:
    """Makes the condition that a row's id is in one of so many runs; see :func:`bounds`."""
    return f"({' OR '.join(f'id BETWEEN {{first{n}}} AND {{last{n}}}' for n in range(runs))})"


def without_runs(runs: int) -> str:
    """Makes the condition that a row's id is in none of so many runs; see :func:`bounds`."""
    return " AND ".join(f"id NOT BETWEEN {{first{n}}} AND {{last{n}}}" for n in range(runs))


def bounds(runs: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Makes the parameters for runs of ids: ``first0`` and ``last0``, and so on."""
    return {
        name: end
        for n, (first, last) in enumerate(runs)
        for name, end in ((f"first{n}", first), (f"last{n}", last))
    }
