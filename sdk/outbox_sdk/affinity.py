"""The affinity seam: which rows this cluster may mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ColumnIs:
    """Holds for rows whose ``column`` equals ``value``."""

    column: str
    value: str | int


@dataclass(frozen=True, slots=True)
class OlderThan:
    """Holds for rows created more than ``seconds`` ago by the database's clock."""

    seconds: float


Condition = ColumnIs | OlderThan


class Affinity(Protocol):
    """Limits what one cluster marks when several harvest copies of the same table.

    See docs/algorithm.md, "Several clusters".
    """

    def eligible(self) -> Sequence[Condition]:
        """Returns the conditions of which at least one must hold for a row to be marked.

        Returns:
            The conditions in any order; an empty sequence makes every row eligible. The answer is
            the same for the life of the object: it is read once for each connection.
        """
        ...
