"""Asks for confirmation before an action that cannot be undone."""

import sys
from typing import Annotated

import typer
from rich.console import RenderableType

from outbox_core.cli.terminal import messages

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed without a terminal.")]


def confirm(about: RenderableType, question: str, *, yes: bool) -> None:
    """Returns if the user agrees.

    Args:
        about: Is shown before the question.
        question: The question, for the terminal.
        yes: Whether the command line has agreed already.

    Raises:
        typer.BadParameter: There is no terminal to ask on.
        typer.Abort: The answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this command asks for confirmation, and there is no terminal: add --yes")
    messages().print(about)
    typer.confirm(question, abort=True, err=True)
