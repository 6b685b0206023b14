"""Durations as Go writes them, and days: ``10ms``, ``1.5s``, ``1m30s``, ``1h``, ``7d``."""

import re

_SHORT = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3}
UNITS = {**_SHORT, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
"""Unit → seconds; the micro sign exists twice in Unicode."""

LONGEST = 876_000 * 3600.0
"""A hundred years, in seconds: instants that far away can be told, and waited for."""

_WRITTEN = r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h|d)"
_PART = re.compile(_WRITTEN)
PATTERN = f"0|(?:{_WRITTEN})+"
"""What a duration looks like."""


def parse_duration(text: str) -> float:
    """Returns the seconds of numbers with their units, without spaces; a bare ``0`` needs no unit.

    Raises:
        ValueError: The text is no duration, or one of more than a hundred years.
    """
    if text == "0":
        return 0.0
    seconds, position = 0.0, 0
    while match := _PART.match(text, position):
        seconds += float(match[1]) * UNITS[match[2]]
        position = match.end()
    if not text or position < len(text):
        raise ValueError("expected a duration such as 500ms, 5s or 1m30s")
    if seconds > LONGEST:
        raise ValueError("expected a duration of 876000h (a hundred years) at most")
    return seconds


def format_duration(seconds: float) -> str:
    """Returns ``seconds`` in readable form: ``250ms``, ``5s``, ``2m05s``, ``3h10m``."""
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms" if seconds else "0s"
    if seconds < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{seconds:.3g}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - minutes in an hour
        return f"{minutes}m{rest:02}s" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"
