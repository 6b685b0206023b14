"""The texts that an operator gives, whichever way they come."""

from outbox_api.base.errors import ConfigError, OutboxError

LONGEST_REASON = 1000
"""Characters that a reason has at most."""


class ReasonTooLong(OutboxError):  # noqa: N818 - reads as what happened, like its siblings
    """A reason has more characters than the journal is to hold."""


def check_reason(reason: str) -> str:
    """Returns the reason as it is."""
    if len(reason) > LONGEST_REASON:
        raise ReasonTooLong(
            f"nothing was done: the reason has {len(reason):,} characters, "
            f"and {LONGEST_REASON:,} are the most"
        )
    return reason


def check_text(text: str) -> None:
    """Raises ``ConfigError`` for half of a surrogate pair, which no database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("a key, a topic, a name or a condition holds half of a character") from None
