"""Points in time as people write them: ISO 8601, or how long ago."""

from datetime import UTC, datetime, timedelta

from outbox_core.text.duration import parse_duration

FORMS = "2026-03-01 or 2026-03-01T12:00 (UTC), 2026-03-01T12:00+02:00"
"""How a time is written, for errors."""


def parse_time(text: str) -> datetime:
    """Returns a time of ISO 8601, in UTC; one that names no zone is in UTC, a date is its beginning.

    Raises:
        ValueError: The text is no time.
    """
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"expected a time such as {FORMS}") from None


def parse_moment(text: str, now: datetime) -> datetime:
    """Returns a time as :func:`parse_time`, or a duration back from ``now``.

    Raises:
        ValueError: The text is neither.
    """
    try:
        return now - timedelta(seconds=parse_duration(text))
    except ValueError:
        pass
    try:
        return parse_time(text)
    except ValueError:
        raise ValueError(f"expected a time such as {FORMS}, or how long ago, such as 2h") from None
