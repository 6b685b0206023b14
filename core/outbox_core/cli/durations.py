"""Durations on the command line."""

import typer

from outbox_core.config.duration import parse_duration


def seconds(text: str, option: str) -> float:
    """Returns the seconds of a duration.

    Args:
        text: The text of the option.
        option: The option's name, for an error.

    Raises:
        typer.BadParameter: The text is not a duration.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
