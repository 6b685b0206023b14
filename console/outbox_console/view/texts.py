"""Texts that others have written, as the page shows them; without I/O."""

from __future__ import annotations

from outbox_core.printable import printable

LONGEST = 500
"""Characters of a key, a topic or a reason that are shown."""


def short(text: str) -> str:
    """Returns the beginning of a text that may be of any length, as it prints."""
    cut = f"… ({len(text):,} characters)" if len(text) > LONGEST else ""
    return printable(text[:LONGEST]) + cut
