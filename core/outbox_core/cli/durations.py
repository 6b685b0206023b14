"""Durations on the command line."""

import typer

from outbox_core.config.duration import parse_duration


def seconds(text: str, option: str) -> float:
    """Returns the seconds of a duration.

    Args:
        text: What was written.
        option: For which option, as an error names it.

    Raises:
        typer.BadParameter: It is no duration.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
