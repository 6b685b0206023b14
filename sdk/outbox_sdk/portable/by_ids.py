"""Statements about rows that are chosen by their ids.

Such a statement is a value, not text: each database chooses rows by a list of ids in its own way. The session
knows how the ids are sent (as numbers, as an array, as one parameter), the idiom how they are compared.
"""
# ruff: noqa: S608 - tables come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelectByIds:
    """A query for rows of one table by their ids.

    Attributes:
        columns: What it returns.
        table: The table, quoted, with its hints.
        condition: What else must hold for a row; empty for nothing. Parameters are written ``{name}``.
        suffix: What stands at the end: an order, or a lock.
    """

    columns: str
    table: str
    condition: str = ""
    suffix: str = ""

    def sql(self, ids: str) -> str:
        """Returns the statement; ``ids`` stands between the parentheses of ``IN``."""
        where = _where("id", ids, self.condition)
        return f"SELECT {self.columns} FROM {self.table} WHERE {where}{self.suffix}"


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
    """

    table: str
    assignments: str = ""
    condition: str = ""
    id_column: str = "id"
    index: str = ""

    def where(self, ids: str) -> str:
        """Returns what stands behind ``WHERE``; ``ids`` stands between the parentheses of ``IN``."""
        return _where(self.id_column, ids, self.condition)

    def sql(self, ids: str) -> str:
        """Returns the statement in standard SQL, without regard to ``index``."""
        where = self.where(ids)
        if self.assignments:
            return f"UPDATE {self.table} SET {self.assignments} WHERE {where}"
        return f"DELETE FROM {self.table} WHERE {where}"


def _where(column: str, ids: str, condition: str) -> str:
    return f"{column} IN ({ids}){f' AND {condition}' if condition else ''}"
