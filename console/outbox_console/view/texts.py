"""Texts of the page: what others have written, durations and times; without I/O."""

from __future__ import annotations

from datetime import datetime

from outbox_core.config.duration import format_duration
from outbox_core.printable import printable

LONGEST = 500
"""Characters of a key, a topic or a reason that are shown."""
_MINUTE = 60.0


def short(text: str) -> str:
    """Returns the beginning of a text that may be of any length, as it prints."""
    cut = f"… ({len(text):,} characters)" if len(text) > LONGEST else ""
    return printable(text[:LONGEST]) + cut


def duration(seconds: float) -> str:
    """Returns a duration for people; none is negative, whatever the clocks say.

    From a minute on it advances by ten seconds: a page on which nothing else changes stays as it is.
    """
    return format_duration(max(0.0, round(seconds, 1 if seconds < _MINUTE else -1)))


def clock(at: datetime) -> str:
    """Returns the time of day, in the time zone of this process."""
    return at.astimezone().strftime("%H:%M:%S")


def date_and_clock(at: datetime) -> str:
    """Returns date and time of day, in the time zone of this process."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
