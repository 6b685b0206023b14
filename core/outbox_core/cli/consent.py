"""Asks before something is done that cannot be undone."""

import sys
from typing import Annotated

import typer
from rich.console import RenderableType

from outbox_core.cli.terminal import messages

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where nobody can answer.")]


def ask(about: RenderableType, question: str, *, yes: bool) -> None:
    """Returns once somebody has agreed.

    Args:
        about: What to show before the question.
        question: What to ask, on the terminal.
        yes: Whether the command line agrees already.

    Raises:
        typer.BadParameter: There is no terminal to ask on.
        typer.Abort: The answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this asks before it acts, and there is no terminal: add --yes")
    messages().print(about)
    typer.confirm(question, abort=True, err=True)
