"""Who works at the command line, and why."""

import getpass
import socket
import sys
from typing import Annotated

import typer

from outbox_core.cli.terminal import print_message
from outbox_core.operations import LONGEST_REASON, Operator, ReasonTooLong, check_reason


def _usable(reason: str | None) -> str | None:
    try:
        return None if reason is None else check_reason(reason.strip())
    except ReasonTooLong as error:
        raise typer.BadParameter(str(error)) from None


ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="TEXT",
        show_default=False,
        callback=_usable,
        help=f"Why, for the journal: {LONGEST_REASON:,} characters at most. A terminal asks for it.",
    ),
]


def operator(reason: str | None, *, yes: bool = False) -> Operator:
    """Returns who works at the command line; asks for the reason if there is a terminal and none was given.

    Args:
        reason: The reason that the command line gives; ``None`` for none.
        yes: Whether the command line asks for no questions.

    Raises:
        typer.Abort: The user ended the program instead of answering.
    """
    if reason is None and not yes and sys.stdin.isatty():
        question = "Why? (for the journal; Enter for no reason)"
        reason = typer.prompt(question, "", show_default=False, value_proc=_usable, err=True)
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        user = "unknown"
    return Operator(f"{user} at {socket.gethostname()}", "cli", (reason or "").strip())


def tell_unnoted(why: str) -> None:
    """Says that a deed is done, but that the journal lacks its outcome; an empty text says nothing."""
    if why:
        print_message(f"done, but {why}")
