"""The version of an outbox's tables, and whether this version of outbox can work with them."""

from __future__ import annotations

from typing import NamedTuple

SCHEMA = 1
"""The version of the tables that this version of outbox creates, and that ``outbox migrate`` leads to."""

OLDEST = 1
"""What an outbox must know to work with tables of version ``SCHEMA``."""


class Schema(NamedTuple):
    """What is noted about the tables of an outbox.

    Attributes:
        version: The version of the tables.
        oldest: The least version that an outbox must know to work with them.
    """

    version: int
    oldest: int


def refusal(found: Schema | None) -> str | None:
    """Returns why this version of outbox must not work with the tables; ``None`` if it may.

    Of tables without a note, made by hand, whether a column is missing decides.

    Args:
        found: What is noted, if anything is.
    """
    if found is None or found.oldest <= SCHEMA:
        return None
    return (
        f"its tables have version {found.version} and need an outbox that knows version {found.oldest}; this "
        f"one knows version {SCHEMA}: upgrade outbox"
    )
