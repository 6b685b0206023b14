"""Why an outbox cannot be harvested, and the grants that cure it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outbox_api.portable import TableName

from outbox_postgres.options import quoted


class Fault(NamedTuple):
    """A reason why an outbox cannot be harvested."""

    message: str
    cure: str
    refusal: bool = False


def grant(privileges: Sequence[str], table: TableName | str, user: str) -> str:
    """Returns the statement that grants ``privileges`` on a table, or on what SQL calls so."""
    return f"GRANT {', '.join(privileges)} ON {table} TO {quoted(user)}"


def init_and(grant: str) -> str:
    """Returns the cure for what ``outbox init`` creates, which the user may need a grant on."""
    return f"run 'outbox init', and if another user does: {grant}"
