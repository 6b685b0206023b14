"""How durations, times and counts are worded, on the page, in the terminal and in the journal."""

from __future__ import annotations

import re
from datetime import datetime

from outbox_core.text.duration import format_duration

_MINUTE = 60.0
_TENS_OF_MS = 0.01
_DIGITS = re.compile(r"(\d+)", re.ASCII)


def duration(seconds: float) -> str:
    """Returns a duration for people; none is negative, whatever the clocks say."""
    return format_duration(max(0.0, round(seconds, 1)))


def coarse_duration(seconds: float) -> str:
    """Returns it so that it seldom changes: from a minute on it advances by ten seconds."""
    return duration(round(seconds, 1 if seconds < _MINUTE else -1))


def short_duration(seconds: float) -> str:
    """Returns a duration of which milliseconds matter, with two digits or more: 4.2 ms, 850 ms, 1.5s."""
    if seconds >= 1:
        return duration(seconds)
    return f"{seconds * 1000:.{0 if seconds >= _TENS_OF_MS else 1}f} ms"


def about(count: int, *, exact: bool) -> str:
    """Returns a number that may be an estimate."""
    return f"{'' if exact else 'about '}{count:,}"


def at_least(count: int, *, exact: bool) -> str:
    """Returns a number that may be greater."""
    return f"{count:,}{'' if exact else ' or more'}"


def clock(at: datetime) -> str:
    """Returns the time of day, in the time zone of this process."""
    return at.astimezone().strftime("%H:%M:%S")


def date_and_clock(at: datetime) -> str:
    """Returns date and time of day, in the time zone of this process."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def date_clock_and_zone(at: datetime) -> str:
    """Returns date, time of day and time zone, in the time zone of this process."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def counted(number: int, noun: str) -> str:
    """Returns a number with a noun: '1 row', '1,000 rows'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def natural(text: str) -> tuple[list[str | int], str]:
    """Returns what sorts texts as people count: ``tenant_2`` is before ``tenant_10``."""
    parts = _DIGITS.split(text.casefold())
    return [int(part) if number % 2 else part for number, part in enumerate(parts)], text
