"""Durations on the command line."""

import typer

from outbox_core.config.duration import format_duration, parse_duration


def seconds(text: str, option: str, *, least: float = 0.0) -> float:
    """Returns the seconds of a duration.

    Args:
        text: The text of the option.
        option: The option's name, for an error.
        least: The least that makes sense, in seconds.

    Raises:
        typer.BadParameter: The text is not a duration, or one that is too short.
    """
    try:
        parsed = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if parsed < least:
        raise typer.BadParameter(f"expected at least {format_duration(least)}", param_hint=option)
    return parsed
