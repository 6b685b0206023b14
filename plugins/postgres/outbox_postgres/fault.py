"""Why an outbox cannot be harvested."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A reason why an outbox cannot be harvested.

    Attributes:
        message: What was found.
        cure: What to do about it.
        refusal: Whether a privilege is missing.
    """

    message: str
    cure: str
    refusal: bool = False
